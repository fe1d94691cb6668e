"""Broken checkpoints: each gives one line that names tensor or field and file, and exit code 1."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


class Checkpoint:
    """A copy of the demo model whose second shard and small files may be changed."""

    def __init__(self, folder):
        self.folder = folder
        for path in DEMO.iterdir():
            if path.name in (SHARD, INDEX, "config.json"):
                shutil.copy(path, folder)
            else:
                (folder / path.name).symlink_to(path)

    def read_header(self):
        data = (self.folder / SHARD).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        return data[8:8 + size].decode(), data[8 + size:]

    def write_header(self, text, data):
        raw = text.encode()
        raw += b" " * (-len(raw) % 8)
        (self.folder / SHARD).write_bytes(struct.pack("<Q", len(raw)) + raw + data)

    def edit_header(self, change):
        text, data = self.read_header()
        header = json.loads(text)
        change(header)
        self.write_header(json.dumps(header), data)

    def edit_json(self, name, change):
        path = self.folder / name
        value = json.loads(path.read_text(encoding="utf-8"))
        change(value)
        path.write_text(json.dumps(value), encoding="utf-8")

    def error(self):
        command = [BINARY, "generate", "--quiet", "--model", str(self.folder), "--prompt", "a", "--max-tokens", "1"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        return lines[0]


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path)


def some_tensor(header):
    """Name of a tensor in the middle of the shard, with neighbours on both sides."""
    names = sorted((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    return names[len(names) // 2], names[len(names) // 2 + 1]


def test_unchanged_copy_runs(checkpoint):
    command = [BINARY, "generate", "--quiet", "--model", str(checkpoint.folder), "--prompt", "a", "--max-tokens", "1"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def test_truncated_shard(checkpoint):
    path = checkpoint.folder / SHARD
    os.truncate(path, path.stat().st_size - 1000)
    text, _ = checkpoint.read_header()
    header = json.loads(text)
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"][1])
    error = checkpoint.error()
    assert SHARD in error and last in error


def test_truncated_header(checkpoint):
    os.truncate(checkpoint.folder / SHARD, 1000)
    assert SHARD in checkpoint.error()


def test_wrong_dtype(checkpoint):
    names = []

    def change(header):
        name = next(name for name in header if name != "__metadata__" and header[name]["dtype"] == "BF16")
        header[name]["dtype"] = "F16"
        names.append(name)
    checkpoint.edit_header(change)
    error = checkpoint.error()
    assert names[0] in error and SHARD in error and "F16" in error


def test_wrong_shape(checkpoint):
    names = []

    def change(header):
        name = next(name for name in header if name != "__metadata__" and len(header[name]["shape"]) == 2
                    and header[name]["shape"][0] != header[name]["shape"][1])
        header[name]["shape"].reverse()
        names.append(name)
    checkpoint.edit_header(change)
    error = checkpoint.error()
    assert names[0] in error and SHARD in error


def test_overlapping_extent(checkpoint):
    names = []

    def change(header):
        one, two = some_tensor(header)
        header[two]["data_offsets"] = [header[two]["data_offsets"][0] - 8, header[two]["data_offsets"][1] - 8]
        names.extend([one, two])
    checkpoint.edit_header(change)
    error = checkpoint.error()
    assert SHARD in error and any(name in error for name in names)


@pytest.mark.parametrize("size", [2 ** 63, 2 ** 63 - 8, 2 ** 64 - 8, 2 ** 64])
def test_extent_of_2_to_the_63(checkpoint, size):
    names = []

    def change(header):
        name, _ = some_tensor(header)
        header[name]["data_offsets"][1] = size
        names.append(name)
    checkpoint.edit_header(change)
    error = checkpoint.error()
    assert SHARD in error and names[0] in error


def test_dimension_of_2_to_the_63(checkpoint):
    names = []

    def change(header):
        name, _ = some_tensor(header)
        header[name]["shape"] = [2 ** 62, 4]
        names.append(name)
    checkpoint.edit_header(change)
    error = checkpoint.error()
    assert SHARD in error and names[0] in error


def test_header_length_of_2_to_the_63(checkpoint):
    _, data = checkpoint.read_header()
    (checkpoint.folder / SHARD).write_bytes(struct.pack("<Q", 2 ** 63) + data)
    assert SHARD in checkpoint.error()


def test_duplicated_name(checkpoint):
    text, data = checkpoint.read_header()
    name, other = some_tensor(json.loads(text))
    checkpoint.write_header(text.replace(f'"{other}":', f'"{name}":', 1), data)
    error = checkpoint.error()
    assert SHARD in error and name in error


def test_name_of_another_shard(checkpoint):
    text, data = checkpoint.read_header()
    name, _ = some_tensor(json.loads(text))
    checkpoint.write_header(text.replace(f'"{name}":', '"embed.weight":', 1), data)
    error = checkpoint.error()
    assert SHARD in error and (name in error or "embed.weight" in error)


def test_missing_tensor(checkpoint):
    names = []

    def change(index):
        name = next(name for name, shard in index["weight_map"].items() if shard == SHARD)
        del index["weight_map"][name]
        names.append(name)
    checkpoint.edit_json(INDEX, change)
    error = checkpoint.error()
    assert names[0] in error and (SHARD in error or INDEX in error)


def test_tensor_missing_from_the_shard(checkpoint):
    text, data = checkpoint.read_header()
    header = json.loads(text)
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    begin = header.pop(last)["data_offsets"][0]
    checkpoint.write_header(json.dumps(header), data[:begin])
    error = checkpoint.error()
    assert last in error and SHARD in error


def test_missing_shard(checkpoint):
    (checkpoint.folder / SHARD).unlink()
    assert SHARD in checkpoint.error()


def test_shard_path_out_of_the_folder(checkpoint):
    def change(index):
        for name, shard in index["weight_map"].items():
            if shard == SHARD:
                index["weight_map"][name] = "../" + SHARD
    checkpoint.edit_json(INDEX, change)
    assert INDEX in checkpoint.error()


def edit_text_config(checkpoint, field, value):
    def change(config):
        text = config.get("text_config", config)
        assert field in text
        text[field] = value
    checkpoint.edit_json("config.json", change)


def test_wrong_head_size(checkpoint):
    edit_text_config(checkpoint, "head_dim", 256)
    error = checkpoint.error()
    assert "layers.0.attn." in error and ".safetensors" in error and "expected" in error


@pytest.mark.parametrize("field, value", [
    ("head_dim", 0), ("head_dim", -512), ("head_dim", "512"), ("hidden_size", 2 ** 63), ("num_hidden_layers", 10 ** 9),
    ("vocab_size", 1.5), ("n_routed_experts", None),
])
def test_senseless_configuration(checkpoint, field, value):
    edit_text_config(checkpoint, field, value)
    error = checkpoint.error()
    assert "config.json" in error and field in error


def test_configuration_that_is_no_json(checkpoint):
    (checkpoint.folder / "config.json").write_text("{", encoding="utf-8")
    assert "config.json" in checkpoint.error()


def test_no_checkpoint(tmp_path):
    command = [BINARY, "generate", "--model", str(tmp_path / "none"), "--prompt", "a"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and "none" in done.stderr and len(done.stderr.splitlines()) == 1
