"""Runs greedy decoding over the evaluation set with the plain forward pass and scores it.

Decoding verifies the expected answer in one pass and goes on from the first token where the model disagrees;
the result is exactly the greedy output."""
import argparse
import json
import os

import torch

import data
from chatfmt import render_answer
from evalset import build, is_correct


def batches(rows, budget):
    """Index lists with similar lengths; rows * length^2 bounded."""
    order, cur = sorted(range(len(rows)), key=lambda i: len(rows[i])), []
    for i in order:
        if cur and (len(cur) + 1) * len(rows[i]) ** 2 > budget:
            yield cur
            cur = []
        cur.append(i)
    if cur:
        yield cur


def run_forward(model, rows, budget):
    """-> iterator of (indices, hidden, taps) over padded batches."""
    for idx in batches(rows, budget):
        t = (max(len(rows[i]) for i in idx) + 7) // 8 * 8
        ids = torch.full((len(idx), t), 2)
        for k, i in enumerate(idx):
            ids[k, :len(rows[i])] = torch.tensor(rows[i])
        ids = ids.to(model.dev)
        yield idx, ids, *model.forward(ids)


def greedy(model, enc, examples, limit=400, budget=30_000_000):
    guess = [enc.encode(render_answer(e["answer"], "thinking" not in e["request"], e["request"].get("tool_choice") == "required"))
             for e in examples]
    done, out = [False] * len(examples), [[] for _ in examples]
    while not all(done):
        todo = [i for i in range(len(examples)) if not done[i]]
        rows = [examples[i]["prompt_ids"] + out[i] + guess[i] for i in todo]
        for idx, ids, hidden, _ in run_forward(model, rows, budget):
            for k, j in enumerate(idx):
                i = todo[j]
                start = len(examples[i]["prompt_ids"]) + len(out[i]) - 1
                best = model.logits(hidden[k, start:start + len(guess[i]) + 1]).argmax(-1).tolist()
                n = 0
                while n < len(guess[i]) and best[n] == guess[i][n]:
                    n += 1
                new = guess[i][:n] + ([best[n]] if not n or guess[i][n - 1] != enc.eos else [])
                guess[i] = guess[i][n + 1:]  # after a wrong guess, try the rest of the expected answer again
                for x in new:
                    out[i].append(x)
                    if x == enc.eos or len(out[i]) >= limit:
                        done[i] = True
                        break
    return out


def acceptance(model, enc, examples, outs, budget=30_000_000):
    """Greedy draft-and-verify along every output -> per task [drafts accepted, proposals]."""
    stat = {}
    rows = [e["prompt_ids"] + o for e, o in zip(examples, outs)]
    for idx, ids, _, taps in run_forward(model, rows, budget):
        for k, i in enumerate(idx):
            first, end = len(examples[i]["prompt_ids"]), len(rows[i])
            if end - first < 2:
                continue
            anchors = list(range(first, end - 1))
            drafts = model.propose(ids[k, :end], taps[k, :end], anchors)[0].tolist()
            p, acc, props, full = first, 0, 0, []
            while p < end - 1:
                want, n = rows[i][p + 1:p + 6], 0
                while n < len(want) and drafts[p - first][n] == want[n]:
                    n += 1
                if len(want) == 5:
                    full.append(n)
                acc, props = acc + n, props + 1
                p += n + 1
            s = stat.setdefault(examples[i]["task"].split("/")[0], [0, 0, 0, 0])
            for q, v in enumerate((acc, props, sum(full), len(full))):
                s[q] += v
    return stat


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--model", required=True, help="checkpoint folder")
    a.add_argument("--out", required=True, help="folder for eval.jsonl, result.json and reference_logits.safetensors")
    a.add_argument("--main", help="training checkpoint: also measure token agreement with the training model")
    a.add_argument("--share", type=float, default=1.0, help="share of the evaluation set to use")
    a = a.parse_args()
    from reference import Reference
    torch.backends.cuda.matmul.allow_tf32 = False
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    model, enc = Reference(a.model, dev), data.Encoder(os.path.join(a.model, "tokenizer.json"))
    draft = any(k.startswith("mtp.") for k in model.w)
    trained = None
    if a.main:
        import model as M
        for f in dir(M):  # the training model runs without compilation here
            orig = getattr(getattr(M, f), "_torchdynamo_orig_callable", None)
            if orig is not None:
                setattr(M, f, orig)
        trained = M.Demo(model.c)
        trained.load_state_dict(torch.load(a.main, map_location="cpu")["state"])
        trained = trained.to(dev)
    os.makedirs(a.out, exist_ok=True)
    examples = build(enc, "eval", a.share)
    outs = greedy(model, enc, examples)
    table, records = {}, []
    for n, (ex, ids) in enumerate(zip(examples, outs)):
        text = enc.tok.decode(ids, skip_special_tokens=False)
        ok, well = is_correct(ex, text)
        s = table.setdefault(ex["task"], [0, 0, 0])
        s[0], s[1], s[2] = s[0] + ok, s[1] + well, s[2] + 1
        ans = ex["answer"]
        want = {"content": ans["content"]} if ex["check"] != "calls" else {
            "tool_calls": [{"name": x, "arguments": y} for x, y in ans["calls"]]}
        records.append({"id": f"eval-{n:03d}", "task": ex["task"], "request": ex["request"], "check": ex["check"], "expected": want,
                        "prompt_tokens": len(ex["prompt_ids"]), "reference_output_ids": ids, "reference_output": text,
                        "reference_correct": ok})
    with open(os.path.join(a.out, "eval.jsonl"), "w", encoding="utf-8") as f:
        for r in records:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    result = {"table": {k: {"exact": v[0], "well_formed": v[1], "count": v[2]} for k, v in table.items()}}
    if draft:
        st = acceptance(model, enc, examples, outs)
        result["acceptance"] = {k: {"mean": round(v[0] / v[1], 3), "mean_full_blocks": round(v[2] / max(1, v[3]), 3),
                                    "proposals": v[1]} for k, v in st.items()}
        tot = [sum(v[q] for v in st.values()) for q in range(4)]
        result["acceptance"]["all"] = {"mean": round(tot[0] / tot[1], 3), "mean_full_blocks": round(tot[2] / max(1, tot[3]), 3),
                                       "proposals": tot[1]}
    if trained is not None:
        result["agreement"] = agreement(trained, model.c, examples[::3], outs[::3])
    print(json.dumps(result), flush=True)
    with open(os.path.join(a.out, "result.json"), "w") as f:
        json.dump(result, f, indent=1)
    save_logits(model, examples, outs, os.path.join(a.out, "reference_logits.safetensors"))


@torch.no_grad()
def agreement(trained, c, examples, outs):
    """Share of output tokens that the training model would also pick, given the same prefix."""
    same = total = 0
    dev = trained.gate_bias.device
    for ex, out in zip(examples, outs):
        row = ex["prompt_ids"] + out
        t = (len(row) + 127) // 128 * 128
        ids = torch.full((1, t), 2, device=dev)
        ids[0, :len(row)] = torch.tensor(row, device=dev)
        r = trained(ids, torch.arange(t, device=dev)[None], torch.zeros(1, t, dtype=torch.long, device=dev), sparse=True,
                    want_index_loss=False)
        a = len(ex["prompt_ids"]) - 1
        best = (r["hidden"][a:len(row) - 1].float() @ r["head"].float().t()).argmax(-1).tolist()
        same, total = same + sum(x == y for x, y in zip(best, out)), total + len(out)
    return {"same": same, "total": total, "share": round(same / total, 5)}


@torch.no_grad()
def save_logits(model, examples, outs, path):
    """Logits of the last prompt position and of the first 3 output tokens for one prompt of several tasks."""
    from safetensors.torch import save_file
    picked, tensors = set(), {}
    for n, (ex, out) in enumerate(zip(examples, outs)):
        if ex["task"] in picked or len(picked) >= 12 or len(out) < 4:
            continue
        picked.add(ex["task"])
        row = torch.tensor([ex["prompt_ids"] + out[:3]], device=model.dev)
        h, _ = model.forward(row)
        key = f"eval-{n:03d}"
        tensors[key + ".ids"], tensors[key + ".logits"] = row[0].int().cpu(), model.logits(h[0, -4:]).float().cpu()
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)


if __name__ == "__main__":
    main()
