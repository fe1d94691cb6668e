"""`deepinfer cache` as a shell sees it: figures of a directory, wrong words, a directory that is not there."""
import json
import os
import subprocess

BIN = os.environ["DI_BIN"]


def cache(*words):
    return subprocess.run([BIN, "cache", *words], capture_output=True, text=True, check=False, timeout=60)


def test_an_empty_directory_has_nothing(tmp_path):
    done = cache("stats", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer == {"action": "stats", "dir": str(tmp_path), "bytes": 0, "segments": 0, "units": 0, "snapshots": 0,
                      "record_bytes": 0, "pinned_bytes": 0, "expired": 0}
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


def test_verify_compact_and_purge_of_an_empty_directory(tmp_path):
    done = cache("verify", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 0
    done = cache("compact", str(tmp_path))
    assert (done.returncode, done.stdout.split()) == (0, ["bytes", "freed", "0"]), done.stderr
    done = cache("purge", str(tmp_path), "--all", "--json")
    assert json.loads(done.stdout) == {"action": "purge", "dir": str(tmp_path), "records": 0}


def test_wrong_words_are_usage_errors(tmp_path):
    assert cache("stats").returncode == 2
    assert cache("burn", str(tmp_path)).returncode == 2
    assert cache("purge", str(tmp_path)).returncode == 2
    assert cache("purge", str(tmp_path), "--all", "--tenant", "x").returncode == 2


def test_a_directory_that_is_not_there_is_a_failure(tmp_path):
    done = cache("stats", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "nowhere" in done.stderr


def test_a_closed_pipe_is_a_failure_not_a_crash(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([BIN, "cache", "stats", str(tmp_path)], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert done.returncode in (1, -13, 141)
