"""The installed library as a stranger meets it: prefix, pkg-config, CMake package, symbols, paths."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["DI_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DI_BUILD_DIR"])

# Defines names that the library uses inside: they must not meet.
CONSUMER = """
#include <deepinfer/base.h>
#include <stdio.h>

int buf_init(void);
int buf_init(void)
{
    return 7;
}

int main(void)
{
    printf("%s %s %d\\n", di_version(), di_status_name(DI_E_FORMAT), buf_init());
    return di_version_number() == DI_VERSION ? 0 : 1;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(deepinfer {version} REQUIRED CONFIG)
add_executable(with_static main.c)
target_link_libraries(with_static PRIVATE deepinfer::static)
add_executable(with_shared main.c)
target_link_libraries(with_shared PRIVATE deepinfer::shared)
file(GLOB examples {examples}/*.c)
foreach(file ${{examples}})
    get_filename_component(name ${{file}} NAME_WE)
    add_executable(${{name}} ${{file}})
    target_link_libraries(${{name}} PRIVATE deepinfer::deepinfer m)
endforeach()
"""

ANSWER = "Cairo is the capital of Egypt.\n"


def out(*command, **options):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    out("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def version():
    numbers = {}
    for line in (SOURCE / "include/deepinfer/base.h").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[:1] == ["#define"] and words[1].startswith("DI_VERSION_"):
            numbers[words[1]] = words[2]
    return ".".join(numbers["DI_VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH"))


def pkg_config(prefix, *options):
    path = next(prefix.rglob("pkgconfig"))
    env = dict(os.environ, PKG_CONFIG_PATH=str(path))
    return out("pkg-config", *options, "deepinfer", env=env).split()


def test_only_public_symbols_leave_the_libraries(prefix):
    static, shared = next(prefix.rglob("libdeepinfer.a")), next(prefix.rglob("libdeepinfer.so"))
    for listing in (out("nm", "-g", "--defined-only", static), out("nm", "-D", "--defined-only", shared)):
        names = [line.split()[-1] for line in listing.splitlines() if len(line.split()) == 3]
        assert "di_version" in names
        assert [n for n in names if not n.startswith("di_")] == []


def test_every_function_of_the_public_headers_is_there(prefix):
    declared = set()
    for header in (prefix / "include/deepinfer").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(encoding="utf-8"), flags=re.DOTALL)
        declared |= set(re.findall(r"^DI_API\b[^;(]*?(\w+)\s*\(", text, flags=re.MULTILINE))
    assert "di_version" in declared
    listing = out("nm", "-D", "--defined-only", next(prefix.rglob("libdeepinfer.so")))
    assert declared - {line.split()[-1] for line in listing.splitlines()} == set()


def test_the_installed_files_name_no_folder_of_the_build(prefix):
    for path in prefix.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            data = path.read_bytes()
            assert str(SOURCE).encode() not in data, path
            assert str(prefix).encode() not in data, path


def test_the_demo_model_is_installed(prefix):
    assert (prefix / "share/deepinfer/demo/config.json").is_file()


@pytest.mark.parametrize("static", [True, False])
def test_pkg_config_is_enough(prefix, version, tmp_path, static):
    (tmp_path / "main.c").write_text(CONSUMER, encoding="utf-8")
    assert pkg_config(prefix, "--modversion") == [version]
    options = pkg_config(prefix, "--cflags", "--libs", *(["--static"] if static else []))
    if static:
        options = [str(next(prefix.rglob("libdeepinfer.a"))) if o == "-ldeepinfer" else o for o in options]
    out("cc", "-std=c17", "-Wall", "-Werror", "main.c", "-o", "main", *options, cwd=tmp_path)
    library_path = str(next(prefix.rglob("libdeepinfer.so")).parent)
    env = dict(os.environ, LD_LIBRARY_PATH=library_path)
    assert out(tmp_path / "main", env=env) == f"{version} format 7\n"
    example = SOURCE / "examples" / "generate.c"
    out("cc", "-std=c17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", example, "-o", "generate", *options, cwd=tmp_path)
    assert out(tmp_path / "generate", prefix / "share/deepinfer/demo", env=env) == ANSWER


def test_the_cmake_package_is_enough(prefix, version, tmp_path):
    (tmp_path / "main.c").write_text(CONSUMER, encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(version=version, examples=SOURCE / "examples"), encoding="utf-8")
    out("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    out("cmake", "--build", tmp_path / "b")
    for name in ("with_static", "with_shared"):
        assert out(tmp_path / "b" / name) == f"{version} format 7\n"
    assert out(tmp_path / "b" / "generate", prefix / "share/deepinfer/demo") == ANSWER
    assert out(tmp_path / "b" / "tokenize", prefix / "share/deepinfer/demo", "Hi") == "42\tH\n75\ti\n"
    assert "perplexity" in out(tmp_path / "b" / "logits", prefix / "share/deepinfer/demo", "Hi")


def test_a_cpp_program_uses_all_headers(prefix, tmp_path):
    names = sorted(path.name for path in (prefix / "include/deepinfer").glob("*.h"))
    assert names == ["base.h", "cache.h", "chat.h", "engine.h", "grammar.h", "model.h", "recipe.h", "scheduler.h", "tokenizer.h"]
    lines = [f"#include <deepinfer/{name}>" for name in names]
    lines += ["int main() {", "    di_stop *stop = nullptr;", "    if (di_stop_new(nullptr, nullptr, 0, &stop, nullptr) != DI_OK) {",
              "        return 1;", "    }", "    di_stop_free(stop);", "    return DI_VERSION == di_version_number() ? 0 : 1;", "}"]
    (tmp_path / "main.cpp").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out("c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "main.cpp", "-o", "main",
        *pkg_config(prefix, "--cflags", "--libs"), cwd=tmp_path)
    out(tmp_path / "main", env=dict(os.environ, LD_LIBRARY_PATH=str(next(prefix.rglob("libdeepinfer.so")).parent)))


def test_the_prefix_can_be_moved(prefix, version, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    assert f"-I{moved}/include" in [os.path.normpath(o) if not o.startswith("-I") else "-I" + os.path.normpath(o[2:])
                                    for o in pkg_config(moved, "--cflags")]
