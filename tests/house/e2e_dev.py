"""./dev as a shell sees it: help, exit codes, and which packages it asks for."""
import os
import pathlib
import stat
import subprocess

SOURCE = pathlib.Path(os.environ["DI_SOURCE_DIR"])


def dev(*words, path=None):
    env = dict(os.environ)
    if path is not None:
        env["PATH"] = f"{path}{os.pathsep}{env['PATH']}"
    return subprocess.run([SOURCE / "dev", *words], capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL)


def packages(*lists):
    names = []
    for name in lists:
        for line in (SOURCE / "packaging" / name).read_text(encoding="utf-8").splitlines():
            names += line.split("#")[0].split()
    return names


def fake_machine(folder, installed):
    """A dpkg that knows `installed`, an apt-get that writes down what it is asked and fails, a user who is root."""
    lines = "".join(f"{name} installed\\n" for name in installed)
    scripts = {
        "dpkg-query": f"printf '{lines}'",
        "apt-get": f'echo "$@" >>{folder}/apt.log; exit 1',
        "id": "echo 0",
    }
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder / "apt.log"


def test_help_names_every_command():
    done = dev("help")
    assert done.returncode == 0
    for command in ("run", "build", "test", "lint", "bench", "fuzz", "clean"):
        assert f"\n  {command} " in done.stdout, command


def test_an_unknown_command_is_a_usage_error():
    done = dev("dance")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: ./dev COMMAND" in done.stderr


def test_a_complete_machine_never_calls_apt(tmp_path):
    log = fake_machine(tmp_path, packages("apt.txt"))
    assert dev("build", "no-such-preset", path=tmp_path).returncode != 0
    assert not log.exists()


def test_only_missing_packages_are_installed(tmp_path):
    log = fake_machine(tmp_path, [p for p in packages("apt.txt") if p not in ("ninja-build", "libxxhash-dev")])
    done = dev("build", path=tmp_path)
    assert done.returncode == 1
    assert "could not install: libxxhash-dev ninja-build" in done.stderr
    update, install = log.read_text(encoding="utf-8").splitlines()
    assert update.endswith("update")
    assert install.endswith("install --no-install-recommends libxxhash-dev ninja-build")


def test_a_bench_gets_the_peers_that_it_is_compared_with(tmp_path):
    log = fake_machine(tmp_path, packages("apt.txt"))
    done = dev("bench", "kv", path=tmp_path)
    assert done.returncode == 1
    assert log.read_text(encoding="utf-8").splitlines()[-1].endswith("install --no-install-recommends fio")


def test_a_run_needs_none_of_the_test_packages():
    assert not set(packages("apt.txt")) & set(packages("apt-test.txt") + packages("apt-bench.txt"))
    assert not {"python3", "g++", "libcmocka-dev"} & set(packages("apt.txt"))
