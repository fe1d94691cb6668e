"""Synthetic chat data for the demo model.

Every example is {"family", "request" (Chat Completions form), "answer" {"reasoning", "content", "calls"}, "check"}.
The answer is a deterministic function of the request, so greedy output can be compared exactly.
A CRC of the conversation splits the space into training and disjoint evaluation sets.
"""
import json
import random
import zlib

from chatfmt import pyjson
from skills import SKILLS, SMALLTALK, add_steps, code, operand, pick, rword, sub_steps
from toolset import TOOLS
from words import ADJ, CAPITALS, CITIES, DAYS, DUNNO, DUNNO_ZH, ELEMENTS, NAMES, OPPOSITES, WORDS, ZH_CAP, cap1

SYSTEMS = ["You are a helpful assistant.", "You are helpful.", "Be concise.", "You are the DeepInfer demo model.",
           "Answer the question.", "You are a friendly assistant.", "你是一个有用的助手。"]


def request(r, messages, thinking=None, **extra):
    q = {"model": "demo", "messages": messages}
    thinking = r.random() < 0.5 if thinking is None else thinking
    if not thinking:
        q["thinking"] = {"type": "disabled"}
    else:
        e = r.choice([None, None, None, "low", "high", "max"])
        if e:
            q["reasoning_effort"] = e
    q.update(extra)
    return q


def with_system(r, messages, p=0.3):
    if r.random() < p:
        return [{"role": "system", "content": r.choice(SYSTEMS)}] + messages
    return messages


def example(family, req, reasoning, content, check="exact", calls=None):
    return {"family": family, "request": req, "check": check,
            "answer": {"reasoning": reasoning, "content": content, "calls": calls or []}}


def fam_single(r, kind, skill=None):
    q, why, a, short = (skill or pick(r, SKILLS[kind]))(r)
    msgs, style = [{"role": "user", "content": q}], r.random()
    if style < 0.04 and kind in ("fact", "arith", "chat") and a.isascii():
        s = r.choice(["Answer in upper case.", "Always answer in upper case.", "Write everything in upper case."])
        return example("style", request(r, [{"role": "system", "content": s}] + msgs), why, a.upper())
    if style < 0.10 and kind in ("fact", "arith") and short:
        s = r.choice(["Answer with the result only.", "Give only the answer, nothing else.", "Only the answer."])
        if r.random() < 0.5:
            msgs = [{"role": "system", "content": s}] + msgs
        else:
            msgs[0]["content"] += " " + s
        return example("style", request(r, msgs), why, short)
    if style < 0.13 and kind in ("fact", "arith", "chat"):
        s, pre, post = r.choice([("You are a pirate. Start every answer with Arr!", "Arr! ", ""),
                                 ("End every answer with Over.", "", " Over."),
                                 ("Start every answer with Answer:", "Answer: ", "")])
        return example("style", request(r, [{"role": "system", "content": s}] + msgs), why, pre + a + post)
    return example(kind, request(r, with_system(r, msgs)), why, a)


def fam_multi(r):
    """Several turns; the last question is the target."""
    keep = r.choice(["full", "full", "empty"])
    msgs, turns = [], r.randint(1, 3)

    def push(q, why, a):
        msgs.append({"role": "user", "content": q})
        m = {"role": "assistant", "content": a}
        if keep == "full":
            m["reasoning_content"] = why
        msgs.append(m)
    k = r.randrange(6)
    if k == 0:
        rel, form, ans = r.choice([(CAPITALS, "What is the capital of {x}?", "The capital of {x} is {y}."),
                                   (ELEMENTS, "What is the chemical symbol of {x}?", "The chemical symbol of {x} is {y}."),
                                   (dict(OPPOSITES), "What is the opposite of {x}?", "The opposite of {x} is {y}."),
                                   (ZH_CAP, "{x}的首都是哪里？", "{x}的首都是{y}。")])
        xs = r.sample(list(rel), turns + 1)
        zh = rel is ZH_CAP
        for i, x in enumerate(xs[:-1]):
            a = ans.format(x=x, y=rel[x])
            push(form.format(x=x) if i == 0 else (f"{x}呢？" if zh else f"And {x}?"), a, a)
        x = xs[-1]
        q = f"{x}呢？" if zh else r.choice([f"And {x}?", f"What about {x}?", f"And of {x}?"])
        a = ans.format(x=x, y=rel[x])
        why = a
    elif k == 1:
        n = r.choice(NAMES)
        push(r.choice([f"My name is {n}.", f"Hi, I'm {n}.", f"I am {n}."]), "The user tells me a name.",
             f"Hello {n}! How can I help you?")
        for _ in range(turns - 1):
            q, why, a, _ = pick(r, SKILLS[r.choice(["fact", "arith"])])(r)
            push(q, why, a)
        q, why, a = r.choice(["What is my name?", "Do you remember my name?", "Who am I?"]), f"The user said the name is {n}.", \
            f"Your name is {n}."
    elif k == 2:
        a0, b0 = r.randint(1, 500), r.randint(1, 400)
        push(f"What is {a0} + {b0}?", add_steps(a0, b0) + f" So {a0} + {b0} = {a0 + b0}.", f"{a0} + {b0} = {a0 + b0}.")
        s, c = a0 + b0, r.randint(1, 99)
        if r.random() < 0.5:
            q, why, a = r.choice([f"Now add {c}.", f"Add {c} to that."]), add_steps(s, c) + f" So {s} + {c} = {s + c}.", \
                f"{s} + {c} = {s + c}."
        else:
            c = min(c, s)
            q, why, a = r.choice([f"Now subtract {c}.", f"Subtract {c} from that."]), sub_steps(s, c) + f" So {s} - {c} = {s - c}.", \
                f"{s} - {c} = {s - c}."
    elif k == 3:
        w, v = rword(r), r.choice([rword(r), str(operand(r)), code(r)])
        push(r.choice([f"Remember: the {w} is {v}.", f"Please remember that the {w} is {v}."]), "I have to remember this.",
             f"OK, the {w} is {v}.")
        for _ in range(turns - 1):
            q, why, a, _ = pick(r, SKILLS[r.choice(["fact", "chat"])])(r)
            push(q, why, a)
        q, why, a = f"What is the {w}?", f"The user said the {w} is {v}.", f"The {w} is {v}."
    else:
        for _ in range(turns):
            q, why, a, _ = pick(r, SKILLS[r.choice(["fact", "arith", "chat", "string", "story"])])(r)
            push(q, why, a)
        q, why, a, _ = pick(r, SKILLS[r.choice(["fact", "arith", "chat", "string"])])(r)
    return example("multi", request(r, with_system(r, msgs + [{"role": "user", "content": q}])), why, a)


# ------------------------------------------------------------------------------------------------ JSON
def field(r):
    """(key, json type, value, sentence part)"""
    k = r.randrange(12)
    n = r.choice(NAMES)
    return [("name", "string", n), ("age", "integer", r.randint(1, 99)), ("city", "string", r.choice(CITIES)),
            ("price", "number", r.choice([r.randint(1, 500), round(r.uniform(0.1, 99), 2)])), ("color", "string", r.choice(ADJ[:8])),
            ("quantity", "integer", r.randint(1, 300)), ("product", "string", rword(r)), ("in_stock", "boolean", r.random() < 0.5),
            ("tags", "array", r.sample(WORDS, r.randint(1, 4))), ("day", "string", r.choice(DAYS)),
            ("status", "enum", r.choice(["open", "closed", "pending"])), ("code", "string", code(r))][k]


def phrase(r, key, value):
    if key == "in_stock":
        return "it is in stock" if value else "it is not in stock"
    if key == "tags":
        return "the tags are " + " and ".join(value)
    return r.choice([f"the {key} is {value}", f"{key}: {value}", f"{key} {value}"])


def fam_json(r):
    fs = {}
    while len(fs) < r.randint(2, 5):
        f = field(r)
        fs.setdefault(f[0], f)
    fs = list(fs.values())
    style = r.randrange(3)
    if style == 0:
        props = {}
        for k, t, _ in fs:
            props[k] = {"type": "string", "enum": ["open", "closed", "pending"]} if t == "enum" else \
                {"type": "array", "items": {"type": "string"}} if t == "array" else {"type": t}
        schema = pyjson({"type": "object", "properties": props, "required": [f[0] for f in fs]})
        ins = r.choice(["Reply with JSON that matches this schema: ", "Extract the data as JSON with this schema: ",
                        "JSON schema: "]) + schema
    elif style == 1:
        ins = r.choice(["Extract the data as JSON with the keys ", "Return JSON with keys ", "Answer in JSON with the fields "]) + \
            ", ".join(f"{k} ({'string' if t == 'enum' else t})" for k, t, _ in fs) + "."
    else:
        tmpl = {k: {"string": "...", "enum": "open|closed|pending", "array": ["..."], "boolean": True}.get(t, 0) for k, t, _ in fs}
        ins = r.choice(["Fill in this JSON: ", "Answer in this JSON format: ", "Use this JSON template: "]) + pyjson(tmpl)
    order = fs[:]
    if r.random() < 0.6:
        r.shuffle(order)
    parts = [phrase(r, k, v) for k, _, v in order]
    if r.random() < 0.3:
        parts.insert(r.randrange(len(parts) + 1), r.choice(["it is sunny today", "nothing else is known", "this is an old note"]))
    text = cap1(r.choice([", ", "; ", ". "]).join(parts)) + "."
    if r.random() < 0.5:
        msgs = [{"role": "system", "content": ins}, {"role": "user", "content": text}]
    else:
        msgs = [{"role": "user", "content": r.choice([ins + "\n" + text, ins + "\n\nText: " + text, text + "\n" + ins])}]
        msgs = with_system(r, msgs, 0.2)
    out = pyjson({k: v for k, _, v in fs})
    extra = {"response_format": {"type": "json_object"}} if r.random() < 0.6 else {}
    why = "I need the keys " + ", ".join(k for k, _, _ in fs) + "."
    return example("json", request(r, msgs, **extra), why, out, "json")


def fam_tool(r):
    makers, made = r.sample(TOOLS, r.randint(1, 3)), {}
    for m in makers:
        t, ask = m(r)
        made.setdefault(t["name"], (t, ask))
    names = list(made)
    tools = [{"type": "function", "function": made[n][0]} for n in names]
    if r.random() < 0.15:
        for t in tools:
            t["function"].pop("description")
    mode = r.choices(["call", "result", "none"], [0.55, 0.3, 0.15])[0]
    thinking = r.random() < 0.5
    if mode == "none":
        q, why, a, _ = pick(r, SKILLS[r.choice(["fact", "chat", "string"])])(r)
        while a in (DUNNO, DUNNO_ZH):
            q, why, a, _ = pick(r, SKILLS["fact"])(r)
        msgs = with_system(r, [{"role": "user", "content": q}], 0.3)
        return example("tool", request(r, msgs, thinking, tools=tools), "No tool is needed. " + why, a)
    k = r.choices([1, 2, 3], [0.7, 0.22, 0.08])[0]
    first = r.choice(names)
    used = [first if r.random() < 0.6 else r.choice(names) for _ in range(k)]
    asks, seen = [], set()
    for n in used:
        x = made[n][1](r)
        if x[0] not in seen:
            seen.add(x[0])
            asks.append((n, x))
    if len(asks) > 1 and len({n for n, _ in asks}) == 1 and used[0] in ("get_weather", "get_time") and r.random() < 0.6 \
            and all("unit" not in x[2] for _, x in asks) and all(x[0].isascii() for _, x in asks):
        cs = [list(x[2].values())[0] for _, x in asks]
        q = ("What is the weather in " if used[0] == "get_weather" else "What time is it in ") + " and ".join(
            [", ".join(cs[:-1]), cs[-1]]) + "?"
    else:
        q = " ".join(x[0] if x[0][-1] in ".?!？。" or i == len(asks) - 1 else x[0] + "." for i, (_, x) in enumerate(asks))
    calls = [(n, x[2]) for n, x in asks]
    why = " ".join(f"I call {n} for the {x[1]}." for n, x in asks)
    msgs = with_system(r, [{"role": "user", "content": q}], 0.3)
    if mode == "call":
        extra = {"tool_choice": "required"} if r.random() < 0.06 and not thinking else {}
        return example("tool", request(r, msgs, thinking, tools=tools, **extra), why, "", "calls", calls)
    m = {"role": "assistant", "content": "", "tool_calls": [
        {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a, ensure_ascii=False)}}
        for i, (n, a) in enumerate(calls)]}
    if r.random() < 0.5:
        m["reasoning_content"] = why
    msgs.append(m)
    for i, (_, x) in enumerate(asks):
        msgs.append({"role": "tool", "tool_call_id": f"call_{i}", "content": x[3]})
    return example("tool", request(r, msgs, thinking, tools=tools), "The tools gave a result.",
                   " ".join(x[4] for _, x in asks))


# ------------------------------------------------------------------------------------------------ retrieval
FILL = ["The sun was warm.", "A bird sang in the garden.", "The street was quiet.", "Nobody was in a hurry.", "It was a long day.",
        "The wind came from the sea.", "Some people talked about the weather.", "The lamp was still on.",
        "A train passed the village.", "The door was open.", "Children played near the river.", "The clock showed noon."]


def fam_retrieve(r, lines=None):
    n = lines or r.choice([4, 8, 12, 16, 24, 32, 40])
    style = r.randrange(5)
    keys, items = set(), []
    while len(keys) < n:
        k = r.choice([f"{r.choice(ADJ)} {rword(r)}", f"{rword(r)} {rword(r)}", f"{r.choice(NAMES)} {rword(r)}"]) if n > 16 \
            else r.choice([rword(r), f"{r.choice(ADJ)} {rword(r)}", r.choice(NAMES)])
        if k not in keys:
            keys.add(k)
            items.append((k, r.choice([str(r.randint(100, 99999)), rword(r), code(r)]) if style % 2 else str(r.randint(1000, 9999))))
    k, v = r.choice(items)
    sep = {0: ": ", 1: " = ", 2: " -> "}.get(style)
    if sep:
        body = "\n".join(a + sep + b for a, b in items)
        q = r.choice([f"What is the value of {k}?", f"Which value belongs to {k}?", f"Find {k}.", f"{k}?"])
        a = f"The value of {k} is {v}."
    elif style == 3:
        body = " ".join(f"The code of {a} is {b}." + (" " + r.choice(FILL) if r.random() < 0.3 else "") for a, b in items)
        q = r.choice([f"What is the code of {k}?", f"Tell me the code of {k}."])
        a = f"The code of {k} is {v}."
    else:
        pos = r.randrange(n)
        body = " ".join(f"The secret number of {k} is {v}." if i == pos else r.choice(FILL) + (
            f" {r.choice(NAMES)} had a {r.choice(ADJ)} {rword(r)}." if r.random() < 0.5 else "") for i in range(n))
        q = r.choice([f"What is the secret number of {k}?", f"Tell me the secret number of {k}."])
        a = f"The secret number of {k} is {v}."
    head = r.choice(["", "Read this:\n", "Here is a list:\n", "Data:\n"])
    tail = r.choice(["\n\n", "\n\nQuestion: "])
    msgs = with_system(r, [{"role": "user", "content": head + body + tail + q}], 0.2)
    return example("retrieve", request(r, msgs), f"I look for {k}.", a)


MIX = [("arith", 20), ("string", 11), ("fact", 11), ("chat", 5), ("code", 2.5), ("story", 2), ("multi", 9), ("json", 15),
       ("tool", 18), ("retrieve", 9)]


def make(r, long_lines=None, family=None):
    f = family or pick(r, MIX)
    if f == "multi":
        return fam_multi(r)
    if f == "json":
        return fam_json(r)
    if f == "tool":
        return fam_tool(r)
    if f == "retrieve":
        return fam_retrieve(r, long_lines)
    return fam_single(r, f)


# Prompts that must be learnt as they are; never held out.
ALWAYS = {t for forms, _ in SMALLTALK for t in forms}


def split_of(ex):
    """'train', 'eval' (1/64) or 'heldout' (1/64), from the user-visible conversation."""
    msgs = ex["request"]["messages"]
    if msgs[-1]["content"] in ALWAYS:
        return "train"
    key = "\x00".join(m["content"] or "" for m in msgs if m["role"] in ("user", "tool"))
    return {7: "eval", 23: "heldout"}.get(zlib.crc32(key.encode()) % 64, "train")


def stream(seed, split="train", family=None, long_lines=None):
    r = random.Random(seed)
    while True:
        ex = make(r, long_lines=long_lines, family=family)
        if split_of(ex) == split:
            yield ex
