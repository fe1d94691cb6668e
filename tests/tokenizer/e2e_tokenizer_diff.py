"""Differential test against the Python package `tokenizers` on the released V4.1 file (tokenizer.md 12.3).

At least 200,000 generated strings are encoded with added tokens recognised and not, real text from the source tree likewise,
and random id sequences are decoded. The strings depend on DI_TEST_SEED (default 1) alone. ctest: serial timeout=600
"""
import json
import os
import pathlib
import random
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers")

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
FOLDER = pathlib.Path(os.environ.get("DI_TOKENIZERS") or ROOT / "build" / "tokenizers")
SEED = int(os.environ.get("DI_TEST_SEED") or 1)
N_STRINGS = 200_000
N_ID_LISTS = 20_000
BATCH = 20_000

POOLS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2,
    "àéîõüßÆøñçŁŠžİıſǅʰˀ" "αβγΣςΩάΐ" "абвгдЯЖЩёЇ" "אבגםת" "ابتثجحى" "कखगघअ" "กขคงจ" "가나다힣각",
    "0123456789" "٣٤٥٦۷۸" "०१२३" "１２３４" "½¼²³¹" "ⅠⅣⅿ" "①②㈠㊀〇〡" "𝟎𝟙𝟿",
    "\u4e00\u4e01\u9fa5\u9fa6\u9fff\u3040\u3041\u309f\u30a0\u30ff\u3100\u3105\u3400\u4dbf\u3005\u3007",
    "的一是不了在人有我他这中大来上国你好世界测试模型语言" "あいうえおんアイウエオンー",
    "\u30fb\u30fc\u309b\u309c\u3099\u309a\u30fd\u3097\u3098ｱｲｳﾞﾟ",
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000" "    \n\n\n",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "–—‘’“”„…‰‹›†‡•‥、。〈〉《》「」，！？：；（）｜¡¿§¶·",
    "€£¥₿¢" "±×÷≠≤≥∑∏√∞∂∈∀→⇒←↔" "°©®™¬¦" "▁▂█■□▲△○●★☆" "^`´¨¸˜",
    "\u0300\u0301\u0308\u0327\u0345\u093f\u093e\u064b\u064e\u05b0\u20dd\u20e3\ufe0f\ufe0e\u200d\u200c\u0488",
    "\x00\x01\x02\x07\x08\x0e\x1b\x1f\x7f\x80\x9f\xad\u200b\u2060\ufeff\u061c\u206a\ufff9\ue000\uf8ff\u0378\U000e0001\U0010ffff",
    "😀😂🤣👍🏽👩👨👧❤🔥🇩🇪🇨🇳🏳🌈🦄🫠",
    "𝒜𝓫𐍈𐐀𐐨𠀀𠮷𪜀𫝀𭕄𞤀𖹀",
    "\ufffd\ufffe\ufdd0\uffff",
    "                  ",
]
WORDS = "the of and Hello world int main return void const char printf include don't we're I'll it's http www com 你好 世界 中国 人工智能".split()


def run_tokenize(lines, *options):
    """One JSON value a line through the program; returns the parsed answers."""
    command = [BINARY, "tokenize", "--lines", "--tokenizer", str(FOLDER / "v41.json"), *options]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answer = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in answer.splitlines()]


@pytest.fixture(scope="module")
def oracles():
    """The oracle with added tokens and the one without."""
    path = FOLDER / "v41.json"
    if not path.is_file():
        assert os.environ.get("CI") != "true", "v41.json is not there; tools/tokenizer/setup_tokenizers.py makes it"
        pytest.skip("no v41.json")
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["added_tokens"] = []
    return tokenizers.Tokenizer.from_file(str(path)), tokenizers.Tokenizer.from_str(json.dumps(spec))


@pytest.fixture(scope="module")
def spellings(oracles):
    return [token.content for _, token in sorted(oracles[0].get_added_tokens_decoder().items())]


def fragment(source, spellings):
    """A spelling of an added token, often cut, changed or glued to itself, so that near misses are met as well."""
    spelling = source.choice(spellings)
    kind = source.randrange(5)
    if kind == 0:
        return spelling[: source.randrange(1, len(spelling) + 1)]
    if kind == 1:
        return spelling[source.randrange(len(spelling)):]
    if kind == 2:
        return spelling[0] + spelling
    return spelling


def make_string(source, spellings):
    parts = []
    for _ in range(source.randrange(1, 9)):
        kind = source.random()
        if kind < 0.15:
            parts.append(source.choice(("", " ", "  ", "\n")) + source.choice(WORDS))
        elif kind < 0.22:
            parts.append(fragment(source, spellings))
        elif kind < 0.32:
            parts.append(source.choice(source.choice(POOLS)) * source.randrange(1, 40))
        else:
            pools = source.choices(POOLS, k=source.randrange(1, 4))
            parts.extend(source.choice(source.choice(pools)) for _ in range(source.randrange(1, 9)))
    return "".join(parts)


def real_texts():
    """Files of the source tree in chunks, cut anywhere."""
    for path in sorted(ROOT.glob("src/*/*.c")) + sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")):
        text = path.read_text(encoding="utf-8")
        for start in range(0, len(text), 5000):
            yield text[start:start + 5000]


def assert_same(strings, oracles):
    for oracle, options in zip(oracles, (("--special",), ())):
        want = [encoding.ids for encoding in oracle.encode_batch_fast(strings, add_special_tokens=False)]
        got = run_tokenize(strings, *options)
        assert len(got) == len(want)
        wrong = [i for i in range(len(want)) if got[i] != want[i]]
        assert not wrong, "%d of %d differ, first with %s: %r: %s, expected %s" % (
            len(wrong), len(want), options, strings[wrong[0]], got[wrong[0]], want[wrong[0]])


def test_generated_strings_have_the_same_ids(oracles, spellings):
    source = random.Random(SEED)
    for start in range(0, N_STRINGS, BATCH):
        assert_same([make_string(source, spellings) for _ in range(min(BATCH, N_STRINGS - start))], oracles)


def test_real_text_has_the_same_ids(oracles):
    texts = list(real_texts())
    assert len(texts) > 20
    assert_same(texts, oracles)


def test_long_runs_have_the_same_ids(oracles):
    units = ["a", " ", "-", "=", "好", "\u0301", "👩\u200d", "^", "\n", "1", "\x01", "ab", "é", " a", "\t", "Ａ", "_x"]
    assert_same([unit * n for unit in units for n in (33, 127, 128, 129, 1000, 4097)], oracles)


def test_random_ids_have_the_same_text(oracles):
    source = random.Random(SEED + 1)
    lists = []
    for _ in range(N_ID_LISTS):
        n = source.randrange(12)
        lists.append([source.choice((source.randrange(129_290), source.randrange(259), source.randrange(128_000, 129_280)))
                      for _ in range(n)])
    for skip, options in ((False, ()), (True, ("--skip-special",))):
        want = oracles[0].decode_batch(lists, skip_special_tokens=skip)
        got = run_tokenize(lists, "--decode", *options)
        wrong = [i for i in range(len(want)) if got[i] != want[i]]
        assert not wrong, "%d differ, first: %s: %r, expected %r" % (
            len(wrong), lists[wrong[0]], got[wrong[0]], want[wrong[0]])
