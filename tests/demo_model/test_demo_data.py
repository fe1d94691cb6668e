"""The data side of the demo model, with the standard library alone: generator, prompt encoding, tokenizer files."""
import itertools
import json
import pathlib
import sys
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "demo_model"))

import chatfmt  # noqa: E402
import datagen  # noqa: E402
import evalset  # noqa: E402
import vocabmap  # noqa: E402

TOKENIZER = ROOT / "models" / "demo" / "tokenizer.json"
EVAL = ROOT / "tests" / "data" / "demo_model" / "eval.jsonl"


def token_bytes():
    """Bytes of every id, from tokenizer.json."""
    spellings, added = vocabmap.token_strings(json.loads(TOKENIZER.read_text(encoding="utf-8")))
    table = vocabmap.byte_alphabet()
    return [s.encode() if i in added else bytes(table[c] for c in s) for i, s in enumerate(spellings)]


class DemoData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bytes_of = token_bytes()
        cls.examples = [json.loads(line) for line in EVAL.read_text(encoding="utf-8").splitlines()]

    def text(self, ids):
        return b"".join(self.bytes_of[i] for i in ids).decode()

    def test_the_generator_is_a_function_of_its_seed(self):
        crc = 0
        for example in itertools.islice(datagen.stream(4242), 3000):
            crc = zlib.crc32(json.dumps(example, ensure_ascii=False).encode(), crc)
        self.assertEqual(crc, 3935549372)

    def test_evaluation_prompts_are_kept_out_of_training(self):
        self.assertEqual(len(self.examples), 417)
        self.assertEqual({datagen.split_of(e) for e in self.examples}, {"eval"})

    def test_prompt_ids_spell_the_rendered_request(self):
        for example in self.examples:
            self.assertEqual(self.text(example["prompt_ids"]), chatfmt.render(example["request"]), example["id"])

    def test_reference_outputs_are_judged_as_recorded(self):
        right = 0
        for example in self.examples:
            self.assertEqual(self.text(example["reference_output_ids"]), example["reference_output"], example["id"])
            want = example["expected"]
            calls = [(c["name"], c["arguments"]) for c in want.get("tool_calls", [])]
            judged, _ = evalset.is_correct(dict(example, answer={"content": want.get("content", ""), "calls": calls}),
                                           example["reference_output"])
            self.assertEqual(judged, example["reference_correct"], example["id"])
            right += judged
        self.assertEqual(right, 388)

    def test_the_engram_vocabulary_has_the_size_of_the_model_card(self):
        table = vocabmap.vocab_map(TOKENIZER)
        self.assertEqual((len(table), max(table) + 1), (3072, 2231))


if __name__ == "__main__":
    unittest.main()
