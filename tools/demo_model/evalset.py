"""The evaluation set: which tasks and how many of each, and when an answer is right. Needs no torch."""
import json
import random

import datagen
import skills
from chatfmt import parse_output, render

PLAN = [("arith/addsub", 60), ("arith/muldiv", 20), ("arith/units", 10), ("arith/words", 14), ("arith/compare", 10), ("string", 40),
        ("fact", 60), ("chat", 24), ("code", 12), ("story", 8), ("multi", 36), ("json", 60), ("tool/call", 60), ("tool/result", 24),
        ("tool/none", 12), ("retrieve/short", 24), ("retrieve/2k", 40), ("retrieve/3k", 8)]
SINGLE = {"arith/addsub": skills.sk_addsub, "arith/muldiv": skills.sk_muldiv, "arith/units": skills.sk_units,
          "arith/words": skills.sk_word_problem, "arith/compare": skills.sk_compare}


def build(enc, split, share=1.0, seed=5):
    out = []
    for task, count in PLAN:
        r = random.Random(f"{seed}{split}{task}")
        count, seen = max(1, round(count * share)), set()
        while count:
            if task in SINGLE:
                ex = datagen.fam_single(r, "arith", SINGLE[task])
            elif task == "retrieve/2k":
                ex = datagen.fam_retrieve(r, r.randint(110, 220))
            elif task == "retrieve/3k":
                ex = datagen.fam_retrieve(r, r.randint(230, 330))
            else:
                ex = datagen.make(r, family=task.split("/")[0])
            if datagen.split_of(ex) != split:
                continue
            msgs = ex["request"]["messages"]
            if task.startswith("tool/"):
                kind = "call" if ex["check"] == "calls" else "result" if msgs[-1]["role"] == "tool" else "none"
                if kind != task[5:]:
                    continue
            ids = enc.encode(render(ex["request"]))
            n = len(ids)
            if task == "retrieve/2k" and not 1800 <= n <= 2030 or task == "retrieve/3k" and not 2800 <= n <= 3600:
                continue
            key = json.dumps(ex["request"], ensure_ascii=False)
            if key in seen:
                continue
            seen.add(key)
            ex["task"], ex["prompt_ids"] = task, ids
            out.append(ex)
            count -= 1
    return out


def is_correct(ex, text):
    thinking = "thinking" not in ex["request"]
    p = parse_output(text, thinking, ex["request"].get("tool_choice") == "required")
    if p is None:
        return False, False
    a = ex["answer"]
    if ex["check"] == "json":
        try:
            v = json.loads(p["content"])
        except ValueError:
            return False, False
        return v == json.loads(a["content"]), True
    if ex["check"] == "calls":
        return p["calls"] == [(n, x) for n, x in a["calls"]], bool(p["calls"])
    return p["content"] == a["content"] and not p["calls"], True
