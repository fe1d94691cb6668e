"""Checks what compilers don't: layers, names, prose, headers. `./dev lint` runs it; it prints one line a finding.

Each check takes text or a list of paths and returns findings, so that tests/house/test_lint.py can feed it by hand.
The table LAYERS is the one of docs/architecture.md; change both together."""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

Finding = collections.namedtuple("Finding", "path line message")

LAYERS = {
    "core": "",
    "ops": "core",
    "comm": "core ops",
    "cpu": "core ops comm",
    "cuda": "core ops comm",
    "tokenizer": "core",
    "image": "core",
    "recipe": "core tokenizer image",
    "grammar": "core tokenizer",
    "kv": "core",
    "model": "core ops comm tokenizer",
    "engine": "core ops model kv comm grammar tokenizer",
    "chat": "core recipe tokenizer grammar image engine",
    "server": "core",
    "router": "core",
    "tools": "core server router",
}
LAYERS = {room: set(below.split()) for room, below in LAYERS.items()}
HEADER_ROOM = {"scheduler": "engine", "cache": "kv"}  # public headers that are not called after their room
ANY_PUBLIC = {"server", "router", "tools"}  # may include every public header
BACKENDS = {"cpu", "cuda"}
BACKEND_LIST = "src/ops/backend_list.c"  # the one file that may name a backend
FOREIGN = ("json-c/", "json.h", "openssl/", "xxhash.h", "utf8proc.h", "microhttpd.h", "curl/", "yaml.h", "lmdb.h", "liburing.h",
           "zstd.h", "jpeglib.h", "turbojpeg.h", "png.h", "webp/", "hwloc.h", "mpi.h", "nccl.h", "histedit.h")
FOREIGN_FILES = 2  # at most so many files may wrap one foreign library

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
UNTRACKED_WORK = re.compile(r"\b(TODO|FIXME)\b(?!\s*\(?#\d)")
MACHINE_PATH = re.compile(r"(?<![\w.$}-])/(work|root|home/[a-z]\w*|tmp)/")
BANNED = re.compile(r"(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca)\s*\(")

MAX_COLUMNS = 140  # the aim is 100-120
MAX_TEST_COLUMNS = 160  # tables of cases
MAX_LINES = 1500
MAX_README_LINES = 60
MAX_TREE_BYTES = 50 << 20
GENERATED = re.compile(r"_(data|table|tables)\.[ch]$")
DATA = re.compile(r"^(tests/data|models|fuzz/corpus)/")


def room_of(path):
    """src/kv/kv_tree.c -> kv, tools/main.c and tools/verify/golden.c -> tools, anything else -> None."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return "tools" if parts[0] == "tools" and path.endswith((".c", ".h")) else None


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1) == "<", found.group(2)


def check_layers(path, text):
    """Who includes whom. Public headers belong to the room of their name; base.h is everybody's."""
    room = room_of(path)
    if room is None:
        return []
    if room not in LAYERS:
        return [Finding(path, 1, f"room {room} is not in the table of layers")]
    out = []
    allowed = LAYERS[room] | {room}
    for number, angle, name in includes(text):
        top, _, rest = name.partition("/")
        if name.startswith("deepinfer/"):
            owner = HEADER_ROOM.get(rest.removesuffix(".h"), rest.removesuffix(".h"))
            if not angle:
                out.append(Finding(path, number, f"public header in quotes: {name}"))
            if owner != "base" and owner not in allowed and room not in ANY_PUBLIC:
                out.append(Finding(path, number, f"{room} may not include the public header of {owner}"))
        elif angle:
            continue
        elif not rest:
            if room != "tools":
                out.append(Finding(path, number, f'include "{name}" without its room'))
        elif top not in LAYERS and room == "tools":
            continue  # a folder under tools/
        elif top not in LAYERS:
            out.append(Finding(path, number, f'include "{name}": no such room'))
        elif top in BACKENDS and room != top:
            if path != BACKEND_LIST:
                out.append(Finding(path, number, f"only {BACKEND_LIST} may include {top}/"))
        elif top not in allowed:
            out.append(Finding(path, number, f"{room} may not include {top}"))
        elif top != room and rest.endswith("_int.h"):
            out.append(Finding(path, number, f"{name} is private to {top}"))
    return out


def check_foreign(files):
    """A foreign library's header appears in the one or two files that wrap it. files: {path: text}."""
    users = collections.defaultdict(set)
    for path, text in files.items():
        if room_of(path) is not None:
            for _, angle, name in includes(text):
                library = next((f for f in FOREIGN if angle and (name == f or f.endswith("/") and name.startswith(f))), None)
                if library:
                    users[library.rstrip("/")].add(path)
    return [Finding(sorted(paths)[0], 1, f"{library} is included by {len(paths)} files: {', '.join(sorted(paths))}")
            for library, paths in sorted(users.items()) if len(paths) > FOREIGN_FILES]


def check_names(paths):
    """File names are snake_case and unique under src/; every room has a README.md."""
    out, seen, rooms = [], {}, set()
    for path in sorted(paths):
        if not path.startswith("src/") or path.count("/") < 2:
            continue
        rooms.add(path.split("/")[1])
        name = os.path.basename(path)
        if name == "README.md":
            continue
        if not re.fullmatch(r"[a-z0-9_]+\.(c|h|inc|cu|cuh)", name):
            out.append(Finding(path, 1, "file names under src/ are snake_case .c, .h, .inc (a body that several .c files include), .cu or .cuh"))
        if name in seen:
            out.append(Finding(path, 1, f"same file name as {seen[name]}"))
        seen[name] = path
    out += [Finding(f"src/{room}", 1, "room without README.md") for room in sorted(rooms) if f"src/{room}/README.md" not in paths]
    return out


def check_text(path, text):
    """Line by line: paths of a machine, open ends without an issue, form of source files."""
    out = []
    if DATA.match(path) and not path.endswith(".md"):
        return out
    source = re.search(r"\.(c|h|cu|cuh|py|cmake|sh)$", path) is not None
    c_source = re.search(r"\.(c|h|cu|cuh)$", path) is not None
    ours = room_of(path) is not None or path.startswith("include/")
    columns = MAX_TEST_COLUMNS if path.startswith("tests/") else MAX_COLUMNS
    for number, line in enumerate(text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found and not (found.group(1) == "tmp" and path.startswith("tests/")):
            out.append(Finding(path, number, f"path of a machine: /{found.group(1)}/"))
        if UNTRACKED_WORK.search(line) and not path.startswith(("tools/lint/", "tests/house/", "CONTRIBUTING")):
            out.append(Finding(path, number, "open end without an issue number"))
        if source and line.rstrip() != line:
            out.append(Finding(path, number, "blank at the end of the line"))
        if c_source and "\t" in line:
            out.append(Finding(path, number, "tab"))
        if c_source and len(line) > columns and not GENERATED.search(path):
            out.append(Finding(path, number, f"{len(line)} columns, at most {columns}"))
        banned = c_source and ours and BANNED.search(line)
        if banned and not line.lstrip().startswith(("*", "/*")):
            out.append(Finding(path, number, f"{banned.group(1)} is not used here"))
    if source and text and not text.endswith("\n"):
        out.append(Finding(path, 1, "no newline at the end of the file"))
    if c_source and ours and text and not text.lstrip().startswith(("/*", "//")):
        out.append(Finding(path, 1, "no head comment"))
    lines = text.count("\n")
    if c_source and lines > MAX_LINES and not GENERATED.search(path):
        out.append(Finding(path, 1, f"{lines} lines: split it"))
    if re.fullmatch(r"src/[a-z]+/README\.md", path) and lines > MAX_README_LINES:
        out.append(Finding(path, 1, f"{lines} lines, at most {MAX_README_LINES}: a screen"))
    return out


def check_headers(root, paths):
    """Every header compiles alone; the public ones as C++ too."""
    jobs = []
    for path in sorted(paths):
        public = path.startswith("include/")
        if path.endswith(".h") and (public or path.startswith("src/")) and not GENERATED.search(path):
            jobs.append((path, ["cc", "-std=c17", "-D_GNU_SOURCE", "-xc"]))
            if public:
                jobs.append((path, ["c++", "-std=c++11", "-xc++", "-Wpedantic"]))
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for path, command in jobs:
            if shutil.which(command[0]) is None:
                return [Finding(path, 1, f"cannot check: no {command[0]}")]
            # A file that includes the header: compiling a header itself would warn about unused static functions.
            probe = os.path.join(folder, "probe.c")
            with open(probe, "w", encoding="utf-8") as file:
                file.write(f'#include "{os.path.join(root, path)}"\nint probe_unit;\n')
            done = subprocess.run(command + ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(root, "include"),
                                             "-I", os.path.join(root, "src"), probe], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                first = next((x for x in done.stderr.splitlines() if "error" in x), done.stderr.strip())
                kind = "C++" if command[0] == "c++" else "C"
                out.append(Finding(path, 1, f"does not compile alone as {kind}: {first.replace(root + '/', '')}"))
    return out


def check_size(root, paths):
    total = sum(os.path.getsize(os.path.join(root, path)) for path in paths)
    return [] if total < MAX_TREE_BYTES else [Finding(".", 1, f"the tree has {total >> 20} MiB, at most {MAX_TREE_BYTES >> 20}")]


def tree_files(root):
    """Tracked files and new ones that git does not ignore."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode()
    return sorted({p for p in listed.split("\0") if p and os.path.isfile(os.path.join(root, p))})


def lint(root):
    paths = tree_files(root)
    texts = {}
    for path in paths:
        with open(os.path.join(root, path), "rb") as file:
            data = file.read()
        if b"\0" not in data[:8192]:
            texts[path] = data.decode("utf-8", "replace")
    findings = check_names(paths) + check_foreign(texts) + check_size(root, paths) + check_headers(root, paths)
    for path, text in texts.items():
        findings += check_layers(path, text) + check_text(path, text)
    return len(paths), sorted(findings)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    count, findings = lint(root)
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.message}")
    print(f"lint: {count} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
