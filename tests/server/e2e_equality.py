"""Company changes nothing: 64 different requests run together, in random order, some of them cancelled, give the bytes of each alone.

Alone means one after the other on a server without a prefix cache; together means all at once, on servers that have one, with one and
with two threads, each order twice so that the second time meets a warm cache. Greedy and seeded requests of all APIs, streams and whole
answers, several choices, stop strings, log-probabilities, prompts that begin alike."""
import concurrent.futures
import json
import random

import pytest

from serve import (CAIRO, CHAT, COMPLETIONS, MESSAGES, MODEL, QUIET, RESPONSES, Server, Stream, answer_text, evaluation, event_text, post,
                   question, total)

LEAVES_AFTER = 3  # pieces of text


def prompts():
    """Short questions, and long ones with a common beginning of more than two units of the cache."""
    rows = evaluation("fact") + evaluation("chat") + evaluation("story") + evaluation("code")
    short = list(dict.fromkeys(row["request"]["messages"][-1]["content"] for row in rows))[:24]
    long = max((row["request"]["messages"][-1]["content"] for row in evaluation("retrieve/short")), key=len)
    return short, [f"{long}\n{i}. What is the value of the last name?" for i in range(6)] + [long]


def requests():
    """[(path, body, leaves)], 64 of them, all different."""
    short, long = prompts()
    out = []
    for i, text in enumerate(short):
        path = (CHAT, RESPONSES, MESSAGES, COMPLETIONS)[i % 4]
        out.append((path, question(path, text, temperature=0, max_tokens=40), False))
    for i, text in enumerate(long):
        path = (CHAT, RESPONSES, MESSAGES)[i % 3]
        out.append((path, question(path, text, temperature=0, max_tokens=24), False))
    for seed in range(10):
        out.append((CHAT, question(CHAT, short[seed % 3], temperature=2, seed=seed, max_tokens=30), False))
        out.append((COMPLETIONS, question(COMPLETIONS, short[seed % 4], temperature=1.5, top_p=0.95, seed=seed, max_tokens=20), False))
    out.append((CHAT, {"model": MODEL, "messages": [{"role": "user", "content": CAIRO}], "seed": 7}, False))
    out.append((CHAT, question(CHAT, CAIRO, temperature=0, logprobs=True, top_logprobs=4), False))
    out.append((CHAT, question(CHAT, short[5], temperature=1.5, seed=3, n=3, max_tokens=16), False))
    out.append((CHAT, question(CHAT, CAIRO, temperature=0, stop=["of Eg"]), False))
    out.append((COMPLETIONS, question(COMPLETIONS, [CAIRO, short[0]], temperature=0, max_tokens=12, logprobs=2), False))
    while len(out) < 64:
        path = (CHAT, COMPLETIONS)[len(out) % 2]
        out.append((path, question(path, short[len(out) % 24], temperature=2, seed=len(out), max_tokens=60), True))
    assert len({json.dumps(one) for one in out}) == 64
    return out


def streamed(server, path, body, pieces=None):
    """{choice: text} of a stream, or of its first pieces, after which the client leaves."""
    texts = {}
    with Stream(server, path, body) as stream:
        status, _ = stream.head()
        assert status == 200, stream.raw
        for event in stream.events():
            if text := event_text(event):
                index = event["choices"][0]["index"] if "choices" in event else 0
                texts[index] = texts.get(index, "") + text
                if pieces is not None and (pieces := pieces - 1) == 0:
                    break
    return texts


def generated(path, answer):
    """What the model said, as JSON text: choices with their log-probabilities, items, or blocks, without ids."""
    if path == RESPONSES:
        return json.dumps([[item["type"], item["content"]] for item in answer["output"]])
    if path == MESSAGES:
        return json.dumps([answer["content"], answer["stop_reason"]])
    return json.dumps(answer["choices"])


def texts_of(path, answer):
    """{choice: text} of a whole answer, as `streamed` gives it."""
    if path == CHAT:
        messages = [choice["message"] for choice in answer["choices"]]
        return {i: (message.get("reasoning_content") or "") + message["content"] for i, message in enumerate(messages)}
    if path == COMPLETIONS:
        return {choice["index"]: choice["text"] for choice in answer["choices"]}
    return {0: answer_text(path, answer)}


@pytest.fixture(scope="module")
def alone():
    """The answer to each request by itself."""
    with Server("--no-prefix-cache", "--threads", 1) as server:
        return [post(server, path, body) for path, body, _ in requests()]


def check(server, one, expected, stream):
    path, body, leaves = one
    if leaves:
        got, said = streamed(server, path, body, LEAVES_AFTER), texts_of(path, expected)[0]
        assert got == {0: said[:len(got[0])]}, (one, expected)
    elif stream:
        assert streamed(server, path, body) == texts_of(path, expected), one
    else:
        assert generated(path, post(server, path, body)) == generated(path, expected), one


@pytest.mark.parametrize("threads", [1, 2])
def test_together_each_says_what_it_says_alone(alone, threads):
    work = list(zip(requests(), alone))
    with Server("--threads", threads) as server, concurrent.futures.ThreadPoolExecutor(64) as clients:
        for order in (threads, 10 + threads):
            chance = random.Random(order)
            chance.shuffle(work)
            done = [clients.submit(check, server, one, expected, chance.random() < 0.5) for one, expected in work]
            for one in done:
                one.result()
            server.until_idle()
        page = server.metrics()
        assert total(page, "vllm:iteration_tokens_total_count") < total(page, "vllm:generation_tokens_total"), "they did run together"
        assert total(page, "vllm:prefix_cache_hits") > 0


def test_texts_are_worth_comparing(alone):
    texts = [text for (path, _, _), answer in zip(requests(), alone) for text in texts_of(path, answer).values()]
    assert len(set(texts)) > 50 and sum(map(len, texts)) > 2500
