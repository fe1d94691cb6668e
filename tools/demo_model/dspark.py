"""Draft model (DSpark): three window-only layers over taps of the frozen main model, Markov head, confidence head."""
import argparse
import json
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import config
import data
import model as M
import vocabmap
from model import BF, MUON, _Gather, block_params, collapse, collapse_norm, expand, ffn, hc_mix, island, kv_norm_rope, norm, \
    norm_q8, quant_act, query_rope, unrope, weight_set
from optim import Adam, Muon
from sinkhorn import sinkhorn


@island
def softmax_draft(lc, lb, sink, anchor, doc):
    """lc [B, A*5*H, T] context logits, lb [B*A, 5*H, 5] block logits. Every slot sees the 128 rows before the anchor."""
    b, a = anchor.shape
    t, h = lc.shape[-1], sink.shape[0]
    j = torch.arange(t, device=lc.device)[None, None]
    own = doc.gather(1, anchor)
    ok = (j < anchor[..., None]) & (j >= anchor[..., None] - 128) & (doc[:, None, :] == own[..., None])
    x = (lc.float().view(b, a, 5, h, t) * 512 ** -0.5).masked_fill(~ok[:, :, None, None], float("-inf"))
    y = lb.float().view(b, a, 5, h, 5) * 512 ** -0.5
    s = sink.float().view(1, 1, 1, h, 1)
    m = torch.maximum(torch.maximum(x.amax(-1, keepdim=True), y.amax(-1, keepdim=True)), s).detach()
    ex, ey = torch.exp(x - m), torch.exp(y - m)
    den = ex.sum(-1, keepdim=True) + ey.sum(-1, keepdim=True) + torch.exp(s - m)
    return (ex / den).to(BF).view(lc.shape), (ey / den).to(BF).view(lb.shape)


@island
def draft_loss(z, target_logits, token, weight, conf):
    """Soft cross entropy towards the main model, confidence towards 1 - total variation."""
    lp, p = torch.log_softmax(z.float(), -1), torch.softmax(target_logits.float(), -1)
    ce = -(p * lp).sum(-1)
    label = (1 - 0.5 * (lp.exp() - p).abs().sum(-1)).detach()
    bce = F.binary_cross_entropy_with_logits(conf, label, reduction="none")
    hit = (lp.argmax(-1) == token).float()
    return ((ce + 0.2 * bce) * weight).sum() / weight.sum().clamp_min(1), hit


class Draft(nn.Module):
    def __init__(self, c, seed=2):
        super().__init__()
        self.c = c
        g = torch.Generator().manual_seed(seed)
        d, r, k = c.hidden_size, c.dspark_markov_rank, len(c.dspark_target_layer_ids)
        p = block_params(c, c.num_nextn_predict_layers, c.dspark_n_routed_experts, g)
        p.update({"main_proj": torch.randn(d, k * d, generator=g) * (k * d) ** -0.5, "main_norm": torch.ones(d), "norm": torch.ones(d),
                  "markov_embed": torch.randn(c.vocab_size, r, generator=g) * 0.2,
                  "markov_head": torch.randn(c.vocab_size, r, generator=g) * 0.02, "confidence": torch.zeros(1, d + r)})
        self.p = nn.ParameterDict({n: nn.Parameter(v) for n, v in p.items()})
        self.register_buffer("gate_bias", torch.zeros(c.num_nextn_predict_layers, c.dspark_n_routed_experts))

    def forward(self, ids, pos, doc, taps, anchor, embed, head):
        """taps [N, 3d]; anchor [B, A] row positions -> (base logits [M, V], block hidden [M, d], weights), M = B*A*5."""
        c, heads = self.c, self.c.num_attention_heads
        b, t = ids.shape
        a = anchor.shape[1]
        w = weight_set(self.p)
        per = {k: v.unbind(0) for k, v in w.items() if v.dim() > 1 and v.shape[0] == c.num_nextn_predict_layers}
        main_x = norm(quant_act(taps) @ w["main_proj"].t(), w["main_norm"])
        main_q = quant_act(main_x)
        cos, sin = self.tables
        ccos, csin = cos[pos.view(-1)], sin[pos.view(-1)]
        slot = torch.arange(5, device=ids.device)
        bpos = (pos.gather(1, anchor)[..., None] + slot).view(-1)
        bcos, bsin = cos[bpos], sin[bpos]
        bids = torch.full((b, a, 5), c.dspark_noise_token_id, device=ids.device)
        bids[..., 0] = ids.gather(1, anchor)
        m = bids.numel()
        x = embed[bids.view(-1)][:, None].expand(m, 4, -1).contiguous()
        pre = torch.zeros(m, 4, device=ids.device)
        pre[:, 0] = 1
        loads = []
        for s in range(c.num_nextn_predict_layers):
            ctx = kv_norm_rope(main_q @ per["wkv"][s].t(), per["kv_norm"][s], ccos, csin).view(b, t, -1)
            a_pre, a_post, comb = hc_mix(x, per["hc_attn_fn"][s], per["hc_attn_scale"][s], per["hc_attn_base"][s])
            a_comb = sinkhorn(comb, c.hc_sinkhorn_iters, c.hc_eps)
            _, uq = collapse_norm(x, pre, per["attn_norm"][s])
            _, qrq = norm_q8(uq @ per["wq_a"][s].t(), per["q_norm"][s])
            q = query_rope(qrq @ per["wq_b"][s].t(), bcos, bsin)
            kv = kv_norm_rope(uq @ per["wkv"][s].t(), per["kv_norm"][s], bcos, bsin).view(b * a, 5, -1)
            lc = torch.bmm(q.view(b, a * 5 * heads, -1), ctx.transpose(1, 2))
            lb = torch.bmm(q.view(b * a, 5 * heads, -1), kv.transpose(1, 2))
            pc, pb = softmax_draft(lc, lb, per["attn_sink"][s], anchor, doc)
            o = torch.bmm(pc, ctx).view(m, heads, -1) + torch.bmm(pb, kv).view(m, heads, -1)
            o = unrope(o, bcos, bsin).view(m, c.o_groups, -1)
            wo_a = per["wo_a"][s].view(c.o_groups, c.o_lora_rank, -1)
            y = torch.bmm(o.transpose(0, 1), wo_a.transpose(1, 2)).transpose(0, 1).reshape(m, -1)
            x = expand(quant_act(y) @ per["wo_b"][s].t(), x, a_post, a_comb)
            x, pre, load = ffn(c, x, a_pre, per, s, self.gate_bias[s], c.dspark_num_experts_per_tok)
            loads.append(load)
        hidden = collapse(x, pre)
        return norm(hidden, w["norm"]) @ head.t(), hidden, w, loads


class Step:
    def __init__(self, main, draft, muon, adam, anchors, batch, use_graph):
        self.main, self.draft, self.muon, self.adam, self.anchors, self.use_graph = main, draft, muon, adam, anchors, use_graph
        self.batch = [x.clone() for x in batch]
        dev = batch[0].device
        self.factor, self.stats = torch.zeros((), device=dev), torch.zeros(7, device=dev)
        self.graph, self.calls = None, 0

    def run(self):
        ids, pos, doc, target, weight = self.batch
        b, t = ids.shape
        with torch.no_grad():
            out = self.main(ids, pos, doc, sparse=True, want_index_loss=False, want_taps=True)
            taps = torch.cat(out["taps"], -1)
            score = torch.rand(b, t, device=ids.device) + 2.0 * (weight > 0.5)
            anchor = torch.topk(score[:, :t - 6], self.anchors, -1)[1]
            slot = torch.arange(5, device=ids.device)
            at = (anchor[..., None] + slot).view(b, -1)
            prev, token = ids.gather(1, at).view(-1), target.gather(1, at).view(-1)
            good = (weight.gather(1, at) > 0.5) & (doc.gather(1, at) == doc.gather(1, anchor).repeat_interleave(5, 1))
            good = good.view(b, -1, 5).cumprod(-1).view(-1).float()
            row = (at + torch.arange(b, device=ids.device)[:, None] * t).view(-1)
            tl = out["hidden"][row] @ out["head"].t()
        base, hidden, w, loads = self.draft(ids, pos, doc, taps, anchor, out["embed"], out["head"])
        e = _Gather.apply(w["markov_embed"], prev)
        z = base.float() + (e @ w["markov_head"].t()).float()
        conf = (torch.cat([hidden.detach(), e.detach()], -1).float() @ w["confidence"].float().t())[:, 0]
        decay = 0.9 ** slot.float().repeat(b * anchor.shape[1])
        loss, hit = draft_loss(z, tl, token, good * decay, conf)
        loss.backward()
        self.muon.step(self.factor)
        self.adam.step(self.factor)
        with torch.no_grad():
            load = torch.stack(loads)
            self.draft.gate_bias += 0.004 * torch.sign(load.mean(-1, keepdim=True) - load)
            ok, full = (hit * good).view(-1, 5), good.view(-1, 5)[:, 4:]
            acc = (ok.cumprod(-1) * full).sum(0) / full.sum()
            self.stats += torch.cat([loss.detach()[None], acc, acc.sum()[None]])

    def __call__(self, batch, factor):
        for a, b in zip(self.batch, batch):
            a.copy_(b, non_blocking=True)
        self.factor.fill_(factor)
        self.calls += 1
        if self.graph is not None:
            self.graph.replay()
        elif self.use_graph and self.calls == 4:
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.run()
            self.graph.replay()
        elif self.use_graph:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.run()
            torch.cuda.current_stream().wait_stream(side)
        else:
            self.run()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--tokenizer", required=True, help="tokenizer.json")
    a.add_argument("--main", required=True, help="main.pt of train.py")
    a.add_argument("--out", required=True, help="folder for draft.pt and the log")
    a.add_argument("--seconds", type=float, default=240, help="length of the schedule")
    a.add_argument("--rows", type=int, default=16, help="rows in a step")
    a.add_argument("--length", type=int, default=1024, help="tokens in a row")
    a.add_argument("--anchors", type=int, default=64, help="draft blocks in a row")
    a.add_argument("--workers", type=int, default=5, help="data processes")
    a.add_argument("--graph", action="store_true", help="replay the step as a CUDA graph")
    a.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: by the clock)")
    a.add_argument("--wait", action="store_true", help="compile first, then wait for the main checkpoint")
    a = a.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    c = config.load(vocabmap.vocab_map(a.tokenizer))
    main_model = M.Demo(c)
    if not a.wait:
        main_model.load_state_dict(torch.load(a.main, map_location="cpu")["state"])
    main_model = main_model.to(dev).requires_grad_(False)
    draft = Draft(c).to(dev)
    draft.tables = (main_model.cos_plain, main_model.sin_plain)
    p = dict(draft.p.items())
    muon = Muon({k: v for k, v in p.items() if k in MUON}, {"wo_a": c.o_groups}, lr=0.02)
    lr = {"markov_embed": 4e-3, "markov_head": 4e-3, "attn_sink": 1e-2}
    adam = Adam([([v], lr.get(k, 2e-3)) for k, v in p.items() if k not in MUON])
    it = data.loader(a.tokenizer, a.rows, a.length, 900, a.workers)
    os.makedirs(a.out, exist_ok=True)
    log = open(os.path.join(a.out, "draft_log.jsonl"), "w")
    start, step, run, spent = time.time(), 0, None, 0.0
    if a.wait:
        run = Step(main_model, draft, muon, adam, a.anchors, [x.to(dev) for x in next(it)], a.graph)
        for _ in range(6):
            run(next(it), 0.0)
        run.stats.zero_()
        if dev == "cuda":
            torch.cuda.synchronize()
        print(f"draft ready after {time.time() - start:.1f}s", flush=True)
        while not os.path.exists(a.main):
            time.sleep(0.2)
        main_model.load_state_dict(torch.load(a.main, map_location="cpu")["state"])
        start = time.time()
    while spent < a.seconds and (not a.steps or step < a.steps):
        batch = next(it)
        if run is None:
            run = Step(main_model, draft, muon, adam, a.anchors, [x.to(dev) for x in batch], a.graph)
        f = spent / a.seconds
        run(batch, min(1.0, f / 0.02 + 0.01) if f < 0.5 else max(0.02, 2 * (1 - f)))
        step += 1
        if step in (1, 5, 25):
            if dev == "cuda":
                torch.cuda.synchronize()
            print(f"draft step {step} after {time.time() - start:.1f}s", flush=True)
        if step % 50 == 0 or a.steps:
            v = (run.stats / (1 if a.steps else 50)).tolist()
            run.stats.zero_()
            rec = dict(step=step, loss=round(v[0], 4), accept=[round(x, 3) for x in v[1:6]], mean=round(v[6], 3),
                       seconds=round(time.time() - start, 1))
            log.write(json.dumps(rec) + "\n")
            log.flush()
            if step % 500 == 0 or a.steps:
                print(rec, flush=True)
        spent = time.time() - start
    torch.save({"state": draft.state_dict(), "step": step}, os.path.join(a.out, "draft.pt"))
    print("draft finished", step, flush=True)
    os._exit(0)  # do not wait for the data workers


if __name__ == "__main__":
    main()
