"""Trains the byte-level BPE tokenizer of the demo model on the synthetic corpus and writes tokenizer.json.

Digits are left out of the training text, so every digit stays one token. Usage: build_tokenizer.py OUT [VOCAB_SIZE]"""
import itertools
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import datagen
import words
from chatfmt import ADDED_TAIL, BOS, EOS, PAD, render, render_answer

SPLITS = [r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+".encode().decode("unicode_escape"),
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
GENERAL = ("the of and to in is that it was for on are as with his they at be this have from or one had by but not what all were we "
           "when your can said there use an each which she do how their if will up other about out many then them these so some "
           "her would make like him into time has look two more write go see number no way could people my than first water been "
           "call who its now find long down day did get come made may part over new sound take only little work know place year "
           "live me back give most very after thing our just name good sentence man think say great where help through much "
           "before line right too mean old any same tell boy follow came want show also around form three small set put end does "
           "another well large must big even such because turn here why ask went men read need land different home us move try "
           "kind hand picture again change off play spell air away animal house point page letter mother answer found study still "
           "learn should world hello please thanks sorry maybe today tomorrow yesterday").split()


def main(out, vocab_size=3072):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in SPLITS] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    strip = {ord(c): " " for c in "0123456789"}

    def corpus():
        for ex in itertools.islice(datagen.stream(4242), 60000):
            thinking = "thinking" not in ex["request"]
            text = render(ex["request"]) + render_answer(ex["answer"], thinking)
            for t in ADDED_TAIL + [BOS, EOS]:
                text = text.replace(t, " ")
            yield text.translate(strip)
        for w in words.WORDS + words.NAMES + words.ADJ + words.CITIES + GENERAL:
            for _ in range(40):
                yield f"{w} {w} {w.upper()} {w.capitalize()} {w} x{w}_{w}"
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(ADDED_TAIL), special_tokens=[BOS, EOS, PAD], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=24)
    tok.train_from_iterator(corpus(), trainer)
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED_TAIL])
    tok.save(out)
    with open(out, encoding="utf-8") as file:
        spec = json.load(file)
    spec["normalizer"] = {"type": "Sequence", "normalizers": []}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(spec, file, ensure_ascii=False, indent=1)
    tok = Tokenizer.from_file(out)
    vocab = spec["model"]["vocab"]
    merges = [m if isinstance(m, list) else m.split(" ") for m in spec["model"]["merges"]]
    assert tok.get_vocab_size() == vocab_size, tok.get_vocab_size()
    seen = set()
    for i, (a, b) in enumerate(merges):
        assert vocab[a + b] == 259 + i and a + b not in seen, (i, a, b)
        seen.add(a + b)
    ident = {v: k for k, v in vocab.items()}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    assert [ident[3 + i] for i in range(256)] == alphabet
    print("vocab", vocab_size, "merges", len(merges), tok.encode("Hello, world! 12345 你好").tokens)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3072)
