"""The committed evaluation set is what tools/demo_model generates: same requests, same token ids."""
import json
import pathlib
import sys

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "demo_model"))

import evalset  # noqa: E402


class Encoder:
    def __init__(self):
        self.tokenizer = Tokenizer.from_file(str(ROOT / "models" / "demo" / "tokenizer.json"))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def test_the_evaluation_set_is_generated_again():
    lines = (ROOT / "tests" / "data" / "demo_model" / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    committed = [json.loads(line) for line in lines]
    made = evalset.build(Encoder(), "eval", share=0.8)
    assert len(made) == len(committed) == 417
    for ours, theirs in zip(made, committed):
        assert ours["task"] == theirs["task"]
        assert ours["request"] == theirs["request"], theirs["id"]
        assert ours["prompt_ids"] == theirs["prompt_ids"], theirs["id"]
