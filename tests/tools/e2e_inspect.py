"""`deepinfer inspect`: figures of real checkpoints, and of one in the released size that is only headers and holes."""
import json
import os
import pathlib
import struct
import subprocess
import time

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
RELEASED = ROOT / "tests" / "data" / "config" / "released.json"


def run(*words):
    return subprocess.run([BINARY, "inspect", *map(str, words)], capture_output=True, text=True, timeout=120)


def inspect(folder):
    done = run("--json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def headers(folder):
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        yield from header.items()


def test_figures_of_the_demo_model():
    found = inspect(DEMO)
    sizes = {name: entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in headers(DEMO)}
    assert found["tensors"] == len(sizes) and found["bytes"] == sum(sizes.values())
    for group in ("parts", "formats"):
        assert sum(part["tensors"] for part in found[group]) == len(sizes)
        assert sum(part["bytes"] for part in found[group]) == sum(sizes.values())
    assert sum(part["parameters"] for part in found["parts"]) == sum(part["parameters"] for part in found["formats"])
    assert found["kv_bytes_per_token"] == 534 and found["layers"] == len(found["layer"]) == 8
    assert [layer["ratio"] for layer in found["layer"]] == [0, 0, 2, 2, 1, 1, 1, 1]
    assert [layer["kv_source"] for layer in found["layer"]] == [-1, -1, 2, 2, 4, 4, 4, 4]
    assert [layer["index_source"] for layer in found["layer"]] == [-1, -1, 2, 2, 4, 4, 6, 6]
    assert [i for i, layer in enumerate(found["layer"]) if layer["engram"]] == [1, 3]
    for i, layer in enumerate(found["layer"]):
        assert layer["bytes"] == sum(size for name, size in sizes.items() if name.startswith(f"layers.{i}."))
    experts = next(part for part in found["parts"] if part["name"] == "routed experts")
    assert experts["parameters"] == 8 * 24 * 3 * 128 * 256
    assert found["weights_fit"] is True


def test_table_for_people():
    done = run(DEMO)
    assert done.returncode == 0
    for text in ("1594 tensors of 31.6 MB", "routed experts", "FP4 (E2M1)", "534 B a token", "they fit"):
        assert text in done.stdout
    assert run().stdout.splitlines()[1:3] == done.stdout.splitlines()[1:3]


def inventory(config):
    """(name, dtype, shape) of every tensor, written from the specification (model.md 2.2, dspark.md 1.2, vision.md 2)."""
    t, v = config["text_config"], config["vision_config"]
    hidden, heads, dim, hc = t["hidden_size"], t["num_attention_heads"], t["head_dim"], t["hc_mult"]
    groups, o_lora, inter = t["o_groups"], t["o_lora_rank"], t["moe_intermediate_size"]

    def up(n):
        return (n + 31) // 32

    def fp8(name, out, into):
        yield name + ".weight", "F8_E4M3", [out, into]
        yield name + ".scale", "F8_E8M0", [up(out), up(into)]

    def fp4(name, out, into):
        yield name + ".weight", "I8", [out, into // 2]
        yield name + ".scale", "F8_E8M0", [out, up(into)]

    def bf16(name, *shape):
        yield name, "BF16", list(shape)

    def f32(name, *shape):
        yield name, "F32", list(shape)

    def block(p, experts):
        for norm in ("attn_norm", "ffn_norm"):
            yield from bf16(f"{p}{norm}.weight", hidden)
        for site in ("attn", "ffn"):
            yield from f32(f"{p}hc_{site}_fn", (2 + hc) * hc, hc * hidden)
            yield from f32(f"{p}hc_{site}_base", (2 + hc) * hc)
            yield from f32(f"{p}hc_{site}_scale", 3)
        yield from f32(p + "attn.attn_sink", heads)
        yield from fp8(p + "attn.wq_a", t["q_lora_rank"], hidden)
        yield from fp8(p + "attn.wq_b", heads * dim, t["q_lora_rank"])
        yield from fp8(p + "attn.wkv", dim, hidden)
        yield from fp8(p + "attn.wo_a", groups * o_lora, heads * dim // groups)
        yield from fp8(p + "attn.wo_b", hidden, groups * o_lora)
        yield from bf16(p + "attn.q_norm.weight", t["q_lora_rank"])
        yield from bf16(p + "attn.kv_norm.weight", dim)
        yield from bf16(p + "ffn.gate.weight", experts, hidden)
        yield from f32(p + "ffn.gate.bias", experts)
        yield from f32(p + "ffn.gate.bias_vl", experts)
        for name, kind in [(f"experts.{e}", fp4) for e in range(experts)] + [("shared_experts", fp8)]:
            yield from kind(f"{p}ffn.{name}.w1", inter, hidden)
            yield from kind(f"{p}ffn.{name}.w2", hidden, inter)
            yield from kind(f"{p}ffn.{name}.w3", inter, hidden)

    yield from bf16("embed.weight", t["vocab_size"], hidden)
    yield from bf16("head.weight", t["vocab_size"], hidden)
    yield from bf16("norm.weight", hidden)
    columns = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"] * t["engram_head_dim"]
    for i in range(t["num_hidden_layers"]):
        p = f"layers.{i}."
        yield from block(p, t["n_routed_experts"])
        if i in t["kv_source_layer_ids"]:
            yield from bf16(p + "attn.compressor.wkv.weight", dim, hidden)
            yield from bf16(p + "attn.compressor.norm.weight", dim)
            if t["compress_ratios"][i] == 2:
                yield from bf16(p + "attn.compressor.wgate.weight", dim, hidden)
            yield from bf16(p + "attn.indexer.wk.weight", t["index_head_dim"], dim)
            yield from bf16(p + "attn.indexer.k_norm.weight", t["index_head_dim"])
        if i in t["index_source_layer_ids"]:
            yield from fp8(p + "attn.indexer.wq_b", t["index_n_heads"] * t["index_head_dim"], t["q_lora_rank"])
            yield from bf16(p + "attn.indexer.weights_proj.weight", t["index_n_heads"], hidden)
        if i in t["engram_layer_ids"]:
            rows = t["engram_num_embeddings"][t["engram_layer_ids"].index(i)]
            yield p + "engram.embed.weight", "F8_E4M3", [rows, t["engram_head_dim"]]
            yield p + "engram.embed.scale", "F8_E8M0", [rows, up(t["engram_head_dim"])]
            yield from fp8(p + "engram.wkv", hidden * (hc + 1), columns)
            yield from bf16(p + "engram.q_weight", hc, hidden)
            yield from bf16(p + "engram.k_weight", hc, hidden)
    stages, rank = t["num_nextn_predict_layers"], t["dspark_markov_rank"]
    for i in range(stages):
        yield from block(f"mtp.{i}.", t["dspark_n_routed_experts"])
    yield from fp8("mtp.0.main_proj", hidden, len(t["dspark_target_layer_ids"]) * hidden)
    yield from bf16("mtp.0.main_norm.weight", hidden)
    last = f"mtp.{stages - 1}."
    yield from bf16(last + "norm.weight", hidden)
    yield from bf16(last + "markov_head.embed.weight", t["vocab_size"], rank)
    yield from bf16(last + "markov_head.head.weight", t["vocab_size"], rank)
    yield from bf16(last + "confidence_head.proj.weight", 1, hidden + rank)
    wide = v["hidden_size"]
    yield from bf16("vision.patch_embed.proj.weight", wide, 3 * v["patch_size"] ** 2)
    yield from bf16("vision.patch_embed.proj.bias", wide)
    yield from bf16("vision.norm.weight", wide)
    for i in range(v["num_hidden_layers"]):
        p = f"vision.blocks.{i}."
        yield from bf16(p + "norm1.weight", wide)
        yield from bf16(p + "norm2.weight", wide)
        yield from bf16(p + "attn.wqkv.weight", 3 * wide, wide)
        yield from bf16(p + "attn.wqkv.bias", 3 * wide)
        yield from bf16(p + "attn.wo.weight", wide, wide)
        yield from bf16(p + "attn.wo.bias", wide)
        yield from bf16(p + "mlp.w1.weight", 2 * v["intermediate_size"], wide)
        yield from bf16(p + "mlp.w2.weight", wide, v["intermediate_size"])
    merged = wide * v["downsample_ratio"] ** 2
    yield from bf16("aligner.w1.weight", hidden, merged)
    yield from bf16("aligner.w1.bias", hidden)
    yield from bf16("aligner.w2.weight", hidden, hidden)
    yield from bf16("aligner.w2.bias", hidden)
    for name in ("image_start", "image_end", "image_newline"):
        yield from bf16(name, hidden)


WIDTH = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "BF16": 2, "F32": 4}


def write_holes(folder, config, n_shards):
    """Shards with real headers whose data is a hole in the file."""
    shards = [{} for _ in range(n_shards)]
    ends = [0] * n_shards
    weight_map = {}
    for i, (name, dtype, shape) in enumerate(inventory(config)):
        size = WIDTH[dtype]
        for n in shape:
            size *= n
        s = i % n_shards
        shards[s][name] = {"dtype": dtype, "shape": shape, "data_offsets": [ends[s], ends[s] + size]}
        ends[s] += size
        weight_map[name] = f"model-{s + 1:05}-of-{n_shards:05}.safetensors"
    for s, header in enumerate(shards):
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        with open(folder / f"model-{s + 1:05}-of-{n_shards:05}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            try:
                file.truncate(8 + len(raw) + ends[s])
            except OSError as error:
                pytest.skip(f"the file system takes no hole of {ends[s] >> 30} GiB: {error}")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config))


def test_released_size_from_headers_alone(tmp_path):
    config = json.loads(RELEASED.read_text(encoding="utf-8"))
    write_holes(tmp_path, config, 48)
    start = time.monotonic()
    found = inspect(tmp_path)
    assert time.monotonic() - start < 20
    assert found["tensors"] == 96085 and found["bytes"] == 510286023000
    assert found["kv_bytes_per_token"] == 890 and found["layers"] == 40
    assert found["draft_layers"] == 3 and found["vision_layers"] == 32
    assert sum(part["bytes"] for part in found["parts"]) == 510286023000
    assert "do NOT fit" in run(tmp_path).stdout or found["weights_fit"]


def test_broken_checkpoint_is_one_line(tmp_path):
    done = run(tmp_path / "none")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "none" in done.stderr
    assert run("a", "b").returncode == 2
