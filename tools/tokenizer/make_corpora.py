#!/usr/bin/env python3
"""Makes the texts of the tokenizer bench: english.txt, code.txt, chinese.txt of about 50 MB each.

    make_corpora.py FOLDER [MEGABYTES]

English is prose out of documentation that is installed (plain, gzip, HTML without its tags, Python docstrings), code is
installed C headers and Python sources; no paragraph and no file appears twice. Chinese is drawn by word frequency from the
dictionary of jieba 0.42.1, which pip downloads, with punctuation at the rate of ordinary prose; seeded, so that it is the same
everywhere. The files of an earlier run are kept.
"""
import gzip
import hashlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile

PROSE_ENDS = (".txt", ".md", ".rst", ".html", ".htm", ".gz", ".py")
CODE_ENDS = (".c", ".h", ".hpp", ".py")
ROOTS = ("/usr/share/doc", "/usr/share/perl", "/usr/share", "/usr/lib", "/usr/include", "/usr/local", str(pathlib.Path.home()))
DICTIONARY = "jieba==0.42.1"
TAG = re.compile(r"<[^<>]{0,200}>")
WORD = re.compile(r"^[\"'(]?[A-Za-z][a-z'-]*[.,;:!?)\"']{0,2}$")


def files(ends):
    for root in ROOTS:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                if name.endswith(ends):
                    yield pathlib.Path(folder, name)


def read(path):
    try:
        if path.is_symlink() or path.stat().st_size > 8_000_000:
            return ""
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile):
        return ""


def is_prose(paragraph):
    words = paragraph.split()
    return len(words) >= 12 and sum(1 for word in words if WORD.match(word)) >= 0.8 * len(words)


def unseen(seen, text):
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    if digest in seen:
        return False
    seen.add(digest)
    return True


def english():
    seen = set()
    for path in files(PROSE_ENDS):
        for paragraph in TAG.sub("", read(path)).split("\n\n"):
            if is_prose(paragraph) and unseen(seen, paragraph.strip()):
                yield paragraph.strip("\n") + "\n\n"


def code():
    seen = set()
    for path in files(CODE_ENDS):
        text = read(path)
        if len(text) > 500 and unseen(seen, text):
            yield text


def chinese():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--no-binary=:all:", "--dest", folder, DICTIONARY], check=True)
        with tarfile.open(next(pathlib.Path(folder).glob("*.tar.gz"))) as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith("/jieba/dict.txt"))
            lines = archive.extractfile(member).read().decode().splitlines()
    words, weights = zip(*((line.split()[0], int(line.split()[1])) for line in lines))
    source = random.Random(1)
    total = 0
    cumulative = [total := total + weight for weight in weights]
    while True:
        parts = []
        for word in source.choices(words, cum_weights=cumulative, k=2000):
            parts.append(word)
            draw = source.random()
            if draw < 0.10:
                parts.append("，")
            elif draw < 0.16:
                parts.append(source.choice("。。。！？；：、\n"))
            elif draw < 0.17:
                parts.append(str(source.randrange(2100)))
        yield "".join(parts) + "。\n"


def write(path, size, chunks):
    if path.is_file() and path.stat().st_size >= size:
        return
    partial = path.with_suffix(".part")
    written = 0
    with open(partial, "wb") as out:
        for chunk in chunks:
            written += out.write(chunk.encode())
            if written >= size:
                break
    partial.replace(path)
    print("%s: %.1f MB" % (path.name, written / 1e6), file=sys.stderr)


def main():
    folder = pathlib.Path(sys.argv[1])
    size = int(float(sys.argv[2] if len(sys.argv) > 2 else 52) * 1e6)
    folder.mkdir(parents=True, exist_ok=True)
    for name, chunks in (("english.txt", english()), ("code.txt", code()), ("chinese.txt", chinese())):
        write(folder / name, size, chunks)


if __name__ == "__main__":
    main()
