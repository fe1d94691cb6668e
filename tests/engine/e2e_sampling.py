"""The sampler against an independent computation in NumPy: double precision, full sorts, its own Philox.

Random cases (ties, infinities, NaN, masks, penalties, every filter) go to the built program test_eng_sample_cases, which
answers with the id chosen at each of many positions; here the same ids must come out. A case where a filter's threshold, or a
position where the two best scores, lie closer together than fp32 can tell is left out and counted.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

E_ARGUMENT, E_FORMAT, E_STATE = -1, -2, -7
PROGRAM = Path(os.environ.get("DI_BUILD_DIR", "build/release")) / "tests/engine/test_eng_sample_cases"
N_CASES = 900
N_POSITIONS = 40
DEFAULT = dict(temperature=1.0, top_p=1.0, min_p=0.0, top_k=0, repetition=1.0, presence=0.0, frequency=0.0, seed=0,
               min_tokens=0, n_top=0, position=0, n_positions=N_POSITIONS, bias=(), stop=(), prompt=(), sampled=(), mask=None)


def philox(counter, key):
    """counter: four arrays of uint64 below 2^32; returns four such arrays."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(w, np.uint64) for w in counter]
    k = [int(w) for w in key]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p0 & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def gumbel(seed, position, ids):
    ones = np.ones(len(ids), np.uint64)
    words = philox((ones * np.uint64(position & 0xFFFFFFFF), ones * np.uint64(position >> 32), ids.astype(np.uint64),
                    ones * np.uint64(0)), (seed & 0xFFFFFFFF, seed >> 32))
    fraction = (words[0].astype(np.float64) * 2.0**32 + words[1] + 0.5) * 2.0**-64
    return -np.log(-np.log1p(-fraction))


def processed(case, logits):
    """Logits after mask, bias, penalties and minimum tokens, in fp32 as specified."""
    x = logits.astype(np.float32).copy()
    if case["mask"] is not None:
        x[~case["mask"]] = -np.inf
    for i, b in case["bias"]:
        x[i] += np.float32(b)
    r, p, f = (np.float32(case[k]) for k in ("repetition", "presence", "frequency"))
    for i in set(case["prompt"]) | set(case["sampled"]):
        x[i] = x[i] / r if x[i] > 0 else x[i] * r
        n = list(case["sampled"]).count(i)
        if n > 0:
            x[i] = x[i] - f * np.float32(n)
            x[i] = x[i] - p
    if len(case["sampled"]) < case["min_tokens"]:
        x[list(case["stop"])] = -np.inf
    return x


def filtered(case, x):
    """(kept ids, z of them), or None when a threshold is too near to call."""
    order = np.lexsort((np.arange(len(x)), -x.astype(np.float64)))
    order = order[x[order] > -np.inf]
    best = x[order[0]]
    if np.isinf(best):
        order = order[x[order] == best]
        z = np.zeros(len(order))
    else:
        z = (x[order].astype(np.float64) - float(best)) / float(np.float32(case["temperature"]))
    min_p = float(np.float32(case["min_p"]))
    if min_p > 0:
        if np.any(np.abs(z[z < 0] - np.log(min_p)) < 1e-5):
            return None
        z = z[(z >= np.log(min_p)) | (z == 0)]
    if case["top_k"] > 0:
        z = z[:case["top_k"]]
    top_p = float(np.float32(case["top_p"]))
    if top_p < 1:
        p = np.exp(z) / np.exp(z).sum()
        before = np.concatenate(([0.0], np.cumsum(p)[:-1]))
        if np.any(np.abs(before[1:] - top_p) < 1e-6):
            return None
        z = z[(before < top_p) | (np.arange(len(z)) == 0)]
    return order[:len(z)], z


def expected_status(case, logits):
    if np.isnan(logits).any():
        return E_FORMAT
    if not (logits > -np.inf).any():
        return E_FORMAT
    if not (processed(case, logits) > -np.inf).any():
        return E_STATE
    return 0


def logprobs(case, logits):
    x = logits.astype(np.float64).copy()
    if case["mask"] is not None:
        x[~case["mask"]] = -np.inf
    if np.isinf(x.max()):
        return np.where(x == np.inf, -np.log(np.count_nonzero(x == np.inf)), -np.inf)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def write_case(case, logits):
    def plain(values):
        return [len(values), *values]

    def f(v):
        return "nan" if np.isnan(v) else "%sinf" % ("-" if v < 0 else "") if np.isinf(v) else float(np.float32(v)).hex()

    words = []
    if case["mask"] is not None:
        bits = np.zeros((len(logits) + 31) // 32 * 32, np.uint8)
        bits[:len(logits)] = case["mask"]
        words = np.packbits(bits, bitorder="little").view("<u4").tolist()
    head = [len(logits), f(case["temperature"]), f(case["top_p"]), f(case["min_p"]), case["top_k"], f(case["repetition"]),
            f(case["presence"]), f(case["frequency"]), case["seed"], case["min_tokens"], case["n_top"], case["position"],
            case["n_positions"], len(case["bias"])]
    for i, b in case["bias"]:
        head += [i, f(b)]
    head += plain(case["stop"]) + plain(case["prompt"]) + plain(case["sampled"]) + plain(words)
    return " ".join(map(str, head)) + " " + " ".join(f(v) for v in logits) + "\n"


def random_logits(rng, vocab):
    x = rng.normal(size=vocab) * rng.choice([0.3, 2.0, 6.0])
    kind = rng.integers(8)
    if kind < 3:
        x = np.round(x * 2) / 2  # ties
    if kind in (2, 3):
        x[rng.random(vocab) < 0.3] = -np.inf
    if kind == 4:
        x[rng.random(vocab) < 0.2] = np.inf
    if kind == 5 and rng.random() < 0.3:
        x[rng.integers(vocab)] = np.nan
    if kind == 6 and rng.random() < 0.2:
        x[:] = -np.inf
    return x.astype(np.float32)


def random_case(rng, vocab):
    def ids(n):
        return rng.integers(vocab, size=rng.integers(n + 1)).tolist()

    case = dict(DEFAULT, temperature=float(rng.choice([0.0, 0.2, 0.7, 1.0, 1.5, 4.0])), seed=int(rng.integers(2**63)),
                position=int(rng.integers(2**40)), n_top=int(rng.integers(21)), prompt=ids(6), sampled=ids(6))
    if rng.random() < 0.4:
        case["top_k"] = int(rng.integers(1, vocab + 3))
    if rng.random() < 0.4:
        case["top_p"] = float(rng.choice([0.0, rng.random(), 1 - rng.random() / 100]))
    if rng.random() < 0.3:
        case["min_p"] = float(rng.choice([rng.random(), rng.random() / 50, 1.0]))
    if rng.random() < 0.3:
        case["repetition"] = float(rng.uniform(0.5, 2))
    if rng.random() < 0.3:
        case["presence"], case["frequency"] = rng.uniform(-2, 2, size=2).tolist()
    if rng.random() < 0.3:
        case["bias"] = [(i, float(rng.choice([-100, 100, 1.5, -2.25]))) for i in ids(5)]
    if rng.random() < 0.3:
        case["stop"], case["min_tokens"] = ids(3), int(rng.integers(8))
    if rng.random() < 0.3:
        case["mask"] = rng.random(vocab) < rng.choice([0.1, 0.5, 0.9])
    return case


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    rng = np.random.default_rng(20240607)
    cases = []
    for _ in range(N_CASES):
        vocab = int(rng.choice([1, 2, 7, 33, 64, 200, 1500], p=[0.03, 0.07, 0.2, 0.3, 0.2, 0.15, 0.05]))
        cases.append((random_case(rng, vocab), random_logits(rng, vocab)))
    folder = tmp_path_factory.mktemp("sampling")
    (folder / "cases").write_text("".join(write_case(c, x) for c, x in cases))
    subprocess.run([PROGRAM, folder / "cases", folder / "answers"], check=True)
    lines = iter((folder / "answers").read_text().splitlines())
    return [(c, x, [next(lines).split() for _ in range(c["n_positions"])]) for c, x in cases]


def test_errors_are_those_expected(answers):
    seen = {}
    for case, logits, lines in answers:
        want = expected_status(case, logits)
        assert all(int(line[0]) == want for line in lines), (case, logits)
        seen[want] = seen.get(want, 0) + 1
    assert min(seen[0], seen[E_FORMAT], seen[E_STATE]) >= 10, seen


def test_chosen_ids_are_those_of_numpy(answers):
    checked = near_cases = near_scores = 0
    for case, logits, lines in answers:
        if expected_status(case, logits) != 0:
            continue
        x = processed(case, logits)
        if case["temperature"] == 0:
            assert all(int(line[1]) == int(np.argmax(x)) for line in lines), case
            checked += len(lines)
            continue
        kept = filtered(case, x)
        if kept is None:
            near_cases += 1
            continue
        ids, z = kept
        for k, line in enumerate(lines):
            score = z + gumbel(case["seed"], case["position"] + k, ids)
            best = np.argsort(-score)[:2]
            if len(best) == 2 and score[best[0]] - score[best[1]] < 1e-5 * (1 + abs(score[best[0]])):
                near_scores += 1
                continue
            assert int(line[1]) == ids[best[0]], (case, logits, k)
            checked += 1
    print(f"{checked} draws checked, {near_cases} cases and {near_scores} draws too near to call")
    assert checked > 20000
    assert near_cases < N_CASES * 0.1 and near_scores < 100


def test_logprobs_are_those_of_numpy(answers):
    for case, logits, lines in answers:
        if expected_status(case, logits) != 0:
            continue
        want = logprobs(case, logits)
        order = np.lexsort((np.arange(len(logits)), -want))
        raw = np.where(case["mask"], logits, -np.inf) if case["mask"] is not None else logits
        n_top = min(case["n_top"], int(np.count_nonzero(raw > -np.inf)))
        if np.isinf(raw.max()):  # below +inf, order is by the raw logit though the log-probability is the same
            order = np.lexsort((np.arange(len(logits)), -raw.astype(np.float64)))
        for line in lines[:3]:
            assert np.isclose(float(line[2]), want[int(line[1])], rtol=1e-6, atol=2e-6)
            assert int(line[3]) == (int(line[1]) in case["stop"])
            assert int(line[4]) == n_top
            assert [int(v) for v in line[5::2]] == order[:n_top].tolist()
            assert np.allclose([float(v) for v in line[6::2]], want[order[:n_top]], rtol=1e-6, atol=2e-6)


def test_settings_out_of_range_are_refused(tmp_path):
    bad = [dict(temperature=-1), dict(temperature=float("nan")), dict(top_p=1.5), dict(min_p=-0.1), dict(top_k=-1),
           dict(repetition=0), dict(presence=3), dict(frequency=-3), dict(min_tokens=-1), dict(n_top=21),
           dict(bias=[(4, 1.0)]), dict(bias=[(0, float("inf"))]), dict(stop=[-1])]
    cases = [dict(DEFAULT, n_positions=1, **b) for b in bad]
    (tmp_path / "cases").write_text("".join(write_case(c, np.zeros(4)) for c in cases))
    subprocess.run([PROGRAM, tmp_path / "cases", tmp_path / "answers"], check=True)
    assert (tmp_path / "answers").read_text().split() == [str(E_ARGUMENT)] * len(bad)
