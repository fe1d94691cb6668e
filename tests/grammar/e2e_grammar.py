"""The command `deepinfer grammar`: verdicts, places, exit codes; and random texts of random schemas, which an independent validator must
find valid."""

import json
import os
import pathlib
import random
import subprocess

import jsonschema_rs
import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BIN = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")


class Inexact(Exception):
    """A number that the validator, which computes with doubles, would round."""


def exact_float(text):
    digits = [c for c in text.lower().split("e")[0] if c.isdigit()]
    exponent = int(text.lower().split("e")[1]) if "e" in text.lower() else 0
    if len(digits) > 15 or abs(exponent) > 250:
        raise Inexact
    return float(text)


def grammar(*args):
    return subprocess.run([BIN, "grammar", *args], capture_output=True, text=True, timeout=120)


def test_a_text_is_accepted_or_told_where_it_goes_wrong(tmp_path: pathlib.Path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]}')
    done = grammar("--schema", str(schema), "--check", '{"n": 7}')
    assert (done.returncode, done.stdout) == (0, "accepted\n")
    done = grammar("--schema", str(schema), "--check", '{"n": 70}')
    assert (done.returncode, done.stderr) == (1, "deepinfer: rejected at byte 7\n")
    text = tmp_path / "text.json"
    text.write_text('{"n": 7}\n')
    assert grammar("--schema", str(schema), "--check", str(text)).returncode == 0
    done = grammar("--regex", "a+b", "--check", "aa")
    assert (done.returncode, done.stderr) == (1, "deepinfer: incomplete: rejected at its end, byte 2\n")


def test_grammars_and_tags_are_read_from_files(tmp_path: pathlib.Path):
    gbnf = tmp_path / "sum.gbnf"
    gbnf.write_text('root ::= sum\nsum ::= sum "+" part | part\npart ::= [0-9]+ | "(" sum ")"\n')
    assert grammar("--ebnf", str(gbnf), "--check", "1+(2+3)").stdout == "accepted\n"
    done = grammar("--ebnf", str(gbnf), "--check", "1+)")
    assert (done.returncode, done.stderr) == (1, "deepinfer: rejected at byte 2\n")
    assert grammar("--ebnf", str(gbnf), "--root", "part", "--check", "1+2").returncode == 1
    lark = tmp_path / "list.lark"
    lark.write_text('start: "[" [WORD ("," WORD)*] "]"\n%import common.WORD\n%ignore " "\n')
    assert grammar("--ebnf", str(lark), "--check", "[ a, bc ]").stdout == "accepted\n"
    tags = tmp_path / "tags.json"
    tag = {"begin": "<n>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</n>"}
    tags.write_text(json.dumps({"type": "triggered_tags", "triggers": ["<n"], "tags": [tag]}))
    assert grammar("--tags", str(tags), "--check", "one <n>1</n>").stdout == "accepted\n"
    assert grammar("--tags", str(tags), "--check", "one <n>x</n>").returncode == 1
    assert grammar("--ebnf", str(gbnf), "--tags", str(tags)).returncode == 2
    gbnf.write_text("root ::= missing")
    done = grammar("--ebnf", str(gbnf))
    assert (done.returncode, done.stderr) == (1, "deepinfer: rule 'missing' is used and not defined\n")


def test_samples_of_grammars_are_in_them(tmp_path: pathlib.Path):
    gbnf = tmp_path / "nest.gbnf"
    gbnf.write_text('root ::= "(" root* ")" | "[" root "]" root | [a-z]{3,} ";"\n')
    done = grammar("--ebnf", str(gbnf), "--sample", "30", "--seed", "7")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 30 and len(set(lines)) > 10
    for line in lines:
        assert grammar("--ebnf", str(gbnf), "--check", line).returncode == 0, line


def test_mistakes_have_their_exit_codes(tmp_path: pathlib.Path):
    assert grammar().returncode == 2
    assert grammar("--regex", "a", "--order", "none").returncode == 2
    done = grammar("--regex", "a(")
    assert done.returncode == 1 and "byte 1" in done.stderr
    assert grammar("--schema", str(tmp_path / "missing.json")).returncode == 1


def test_figures_are_printed():
    done = grammar("--regex", "(a|b)+", "--check", "abab", "--stats")
    assert done.returncode == 0
    assert "masks " in done.stdout and "compiled in" in done.stdout


def random_schema(rng: random.Random, depth: int):
    kinds = ["integer", "number", "string", "enum", "null"]
    if depth > 0:
        kinds += ["object", "array", "anyOf", "oneOf", "allOf", "not", "if"]
    kind = rng.choice(kinds)
    sub = lambda: random_schema(rng, depth - 1)
    if kind == "integer":
        low = rng.randint(-50, 50)
        schema = {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 200)}
        return schema | ({"multipleOf": rng.choice([1, 2, 3])} if rng.random() < 0.3 else {})
    if kind == "number":
        return {"type": "number", "exclusiveMinimum": rng.choice([-2, 0, 0.5]), "maximum": rng.choice([1, 7.25, 1000])}
    if kind == "string":
        schema = {"type": "string", "maxLength": rng.randint(2, 9)}
        if rng.random() < 0.4:
            schema["pattern"] = rng.choice(["^[a-z]", "[0-9]", "x?y$", "^(ab|cd)*$"])
        return schema | ({"minLength": rng.randint(0, 2)} if rng.random() < 0.5 else {})
    if kind == "enum":
        return {"enum": rng.sample([1, 2, "a", "b", None, True, [1], {"a": 1}], rng.randint(1, 4))}
    if kind == "object":
        names = rng.sample(["a", "b", "c", "d"], rng.randint(1, 3))
        schema = {"type": "object", "properties": {name: sub() for name in names}, "required": names[: rng.randint(0, len(names))]}
        if rng.random() < 0.5:
            schema["additionalProperties"] = rng.choice([False, {"type": "integer"}])
        if rng.random() < 0.2:
            schema["patternProperties"] = {"^[ab]": sub()}
        if rng.random() < 0.2:
            schema["dependentRequired"] = {"a": ["b"]}
        return schema | ({"minProperties": 1, "maxProperties": 3} if rng.random() < 0.3 else {})
    if kind == "array":
        schema = {"type": "array", "items": sub(), "maxItems": rng.randint(1, 4)}
        if rng.random() < 0.3:
            schema["prefixItems"] = [sub()]
        if rng.random() < 0.3:
            schema["contains"] = sub()
        return schema | ({"uniqueItems": True} if rng.random() < 0.3 else {})
    if kind in ("anyOf", "oneOf", "allOf"):
        return {kind: [sub(), sub()]}
    if kind == "not":
        return {"not": sub(), "type": rng.choice(["string", "integer", "object", "array"])}
    return {"if": sub(), "then": sub(), "else": sub(), "type": rng.choice(["object", "integer"])}


@pytest.mark.parametrize("order", ["any", "auto", "schema"])
def test_random_texts_of_random_schemas_are_valid(tmp_path: pathlib.Path, order: str):
    rng = random.Random(order)
    compiled = 0
    judged = 0
    for i in range(120):
        schema = random_schema(rng, 3)
        path = tmp_path / "schema.json"
        path.write_text(json.dumps(schema))
        done = grammar("--schema", str(path), "--sample", "6", "--json", "--seed", str(i), "--order", order)
        if done.returncode != 0:
            assert "no value satisfies" in done.stderr or "not supported" in done.stderr, (schema, done.stderr)
            continue
        compiled += 1
        validator = jsonschema_rs.validator_for(schema)
        for line in done.stdout.splitlines():
            text = json.loads(line)
            try:
                value = json.loads(text, parse_float=exact_float)
            except Inexact:
                continue
            assert validator.is_valid(value), (schema, text)
            judged += 1
    assert compiled > 60 and judged > 300
