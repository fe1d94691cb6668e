"""Main training on packed rows: first with every visible entry attended, then with the indexer's selection.

The schedule follows the clock."""
import argparse
import json
import os
import time

import torch

import config
import data
import model as M
import vocabmap
from optim import Adam, Muon

LENGTH, MAX_LINES, LONG_SHARE, DENSE_UNTIL = 2048, 170, 0.06, 0.3


def optimizers(m, lr_scale=1.0):
    p = dict(m.p.items())
    muon = Muon({k: v for k, v in p.items() if k in M.MUON}, {"wo_a": m.c.o_groups}, lr=0.02 * lr_scale)
    rest = {k: v for k, v in p.items() if k not in M.MUON}
    lr = {"embed": 4e-3, "e_table0": 6e-3, "e_table1": 6e-3, "head": 2e-3, "attn_sink": 1e-2}
    adam = Adam([([v], lr.get(k, 2e-3) * lr_scale) for k, v in rest.items()])
    return muon, adam


def factor(f, warm=0.01, hold=0.4):
    return min(1.0, f / warm + 0.01) if f < hold else max(0.02, 1 - (f - hold) / (1 - hold))


class Step:
    """One optimiser step on fixed input buffers; replayed as a graph on a GPU."""

    def __init__(self, m, muon, adam, batch, use_graph):
        self.m, self.muon, self.adam, self.use_graph = m, muon, adam, use_graph
        self.dense = torch.ones((), dtype=torch.bool, device=batch[0].device)
        self.batch = [x.clone() for x in batch]
        self.factor = torch.zeros((), device=batch[0].device)
        self.bias_rate = torch.zeros((), device=batch[0].device)
        self.stats = torch.zeros(4, device=batch[0].device)
        self.graph, self.calls = None, 0

    def run(self):
        ids, pos, doc, target, weight = self.batch
        out = self.m(ids, pos, doc, sparse=True, dense_flag=self.dense)
        logits = out["hidden"] @ out["head"].t()
        ce, wsum, hit, cnt = M.cross_entropy(logits, target.view(-1), weight.view(-1))
        loss = ce / wsum.clamp_min(1) + out["index_loss"] * 0.3
        loss.backward()
        self.muon.step(self.factor)
        self.adam.step(self.factor)
        with torch.no_grad():
            load = torch.stack(out["loads"])
            self.m.gate_bias += self.bias_rate * torch.sign(load.mean(-1, keepdim=True) - load)
            self.stats += torch.stack([ce.detach() / wsum, hit.float() / cnt, out["index_loss"].detach(), load.max() / load.mean()])

    def __call__(self, batch, factor, bias_rate, dense):
        for a, b in zip(self.batch, batch):
            a.copy_(b, non_blocking=True)
        self.factor.fill_(factor)
        self.bias_rate.fill_(bias_rate)
        self.dense.fill_(dense)
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
    a.add_argument("--out", required=True, help="folder for main.pt and the log")
    a.add_argument("--seconds", type=float, default=1000, help="length of the schedule")
    a.add_argument("--tokens", type=int, default=32768, help="tokens in a step")
    a.add_argument("--workers", type=int, default=9, help="data processes")
    a.add_argument("--warmup", type=float, default=70, help="seconds of compilation that do not count for the schedule")
    a.add_argument("--graph", action="store_true", help="replay the step as a CUDA graph")
    a.add_argument("--tiny", action="store_true", help="CPU check")
    a = a.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    c = config.load(vocabmap.vocab_map(a.tokenizer))
    m = M.Demo(c).to(dev)
    print("parameters", sum(p.numel() for p in m.parameters()), flush=True)
    muon, adam = optimizers(m)
    os.makedirs(a.out, exist_ok=True)
    log = open(os.path.join(a.out, "train_log.jsonl"), "w")
    length = 512 if a.tiny else LENGTH
    it = data.loader(a.tokenizer, max(1, a.tokens // length), length, 100, a.workers, long_share=LONG_SHARE, max_lines=MAX_LINES)
    step, start, spent, run = 0, time.time(), 0.0, None
    while spent < a.seconds and not (a.tiny and step >= 3):
        batch = next(it)
        if run is None:
            run = Step(m, muon, adam, [x.to(dev) for x in batch], a.graph)
        f = max(0.0, (spent - a.warmup) / (a.seconds - a.warmup))
        run(batch, factor(f), 0.004 if f < 0.8 else 0.0, f < DENSE_UNTIL)
        step += 1
        if step in (1, 5, 25):
            if dev == "cuda":
                torch.cuda.synchronize()
                print("memory", round(torch.cuda.max_memory_allocated() / 2 ** 30, 1), end=" ")
            print(f"{step} steps after {time.time() - start:.1f}s", flush=True)
        if step % 50 == 0 or a.tiny:
            v = (run.stats / (1 if a.tiny else 50)).tolist()
            run.stats.zero_()
            if not all(x == x for x in v):
                raise SystemExit("loss is not finite")
            rec = dict(step=step, loss=round(v[0], 4), acc=round(v[1], 4), index=round(v[2], 4), load=round(v[3], 2),
                       seconds=round(time.time() - start, 1))
            log.write(json.dumps(rec) + "\n")
            log.flush()
            if step % 250 == 0 or a.tiny:
                print(rec, flush=True)
        spent = time.time() - start
    torch.save({"state": m.state_dict(), "step": step}, os.path.join(a.out, "main.tmp"))
    os.replace(os.path.join(a.out, "main.tmp"), os.path.join(a.out, "main.pt"))
    print(f"main training finished at step {step}, {spent:.0f}s", flush=True)
    os._exit(0)  # do not wait for the data workers


if __name__ == "__main__":
    main()
