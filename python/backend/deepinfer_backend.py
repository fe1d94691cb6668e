"""Build backend of the package (PEP 517), standard library only: CMake builds libdeepinfer.so, a wheel takes it along.

The package is built inside the source tree, since the library is made from it. Settings (`pip install -C NAME=VALUE ./python`):

    build-dir=DIR   CMake's folder, kept between builds; one that is configured already is used as it is (build/python)
    demo=no         leave the demo model out of the wheel
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
DATE = (2020, 1, 1, 0, 0, 0)  # of every file in a wheel, so that the same tree gives the same bytes


def version():
    text = (ROOT / "include" / "deepinfer" / "base.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define DI_VERSION_{part} (\d+)", text).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: deepinfer", f"Version: {version()}", "Summary: Inference for DeepSeek-V4.1-Flash",
             "License: Apache-2.0", "Requires-Python: >=3.9", "Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + (PACKAGE / "README.md").read_text(encoding="utf-8")


def tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def wheel_file():
    return f"Wheel-Version: 1.0\nGenerator: deepinfer\nRoot-Is-Purelib: false\nTag: {tag()}\n"


def run(*command):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True)


def build_library(folder):
    """Builds the shared library in `folder` and returns its path."""
    if shutil.which("cmake") is None:
        raise RuntimeError("cmake is not there; packaging/apt.txt lists what the build needs")
    if not (folder / "CMakeCache.txt").exists():
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        run("cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF")
    run("cmake", "--build", folder, "--target", "deepinfer_shared", "--parallel", str(len(os.sched_getaffinity(0))))
    return (folder / "libdeepinfer.so").resolve(strict=True)


def package_files(settings):
    """What the wheel holds: {name: path}."""
    library = build_library(pathlib.Path(settings.get("build-dir") or ROOT / "build" / "python").resolve())
    files = {f"deepinfer/{path.name}": path for path in sorted((PACKAGE / "deepinfer").iterdir()) if path.suffix == ".py"}
    files["deepinfer/py.typed"] = PACKAGE / "deepinfer" / "py.typed"
    files["deepinfer/libdeepinfer.so"] = library
    if settings.get("demo") != "no":
        files.update({f"deepinfer/demo/{path.name}": path for path in sorted((ROOT / "models" / "demo").iterdir()) if path.is_file()})
    return files


def write_wheel(path, files, texts):
    """files: {name: path}, texts: {name: text}; RECORD comes last."""
    info = f"deepinfer-{version()}.dist-info"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        def add(name, data):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        for name, source in files.items():
            add(name, source.read_bytes())
        for name, text in texts.items():
            add(f"{info}/{name}", text.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", DATE), "\n".join(record) + "\n")


# --- The hooks that pip calls ---------------------------------------------------------------------------------------------


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / f"deepinfer-{version()}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata(), encoding="utf-8")
    (folder / "WHEEL").write_text(wheel_file(), encoding="utf-8")
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"deepinfer-{version()}-{tag()}.whl"
    write_wheel(pathlib.Path(wheel_directory) / name, package_files(config_settings or {}),
                {"METADATA": metadata(), "WHEEL": wheel_file(), "top_level.txt": "deepinfer\n"})
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("the package is built from the whole source tree: pip install ./python")
