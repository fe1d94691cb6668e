"""Tiers of the prefix cache under a live server: what was computed is there after a restart, gentle or not, for its tenant alone; fields and
header of the three APIs; figures, and the admin's care."""
import json
import signal
import subprocess

import pytest

from serve import BINARY, CHAT, COMPLETIONS, MESSAGES, RESPONSES, Server, answer_text, ask, post, question, until

WORDS = " ".join(f"The rabbit number {i} walked into the village." for i in range(60))


def options(folder, *more):
    return ("--cache-dir", folder, "--cache-bytes", "256M", "--cache-ram", "64M", "--cache-load", "always", *more)


def cached_of(api, reply):
    usage = reply["usage"]
    if api == MESSAGES:
        return usage["cache_read_input_tokens"]
    return usage["input_tokens_details" if api == RESPONSES else "prompt_tokens_details"]["cached_tokens"]


def say(server, api=CHAT, text=WORDS, **more):
    """The answer's text, and the tokens of the prompt that did not have to run."""
    reply = post(server, api, {**question(api, text, max_tokens=20, temperature=0), **more})
    return answer_text(api, reply), cached_of(api, reply)


def figure(server, name, tier):
    return next(value for key, value in server.metrics().items() if key.startswith(f"deepinfer_cache_{name}{{") and f'"{tier}"' in key)


def cache_stats(folder, *more):
    done = subprocess.run([BINARY, "cache", "stats", "--json", *more, folder], capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def stored(server):
    return until(lambda: figure(server, "stored_bytes_total", "dir") > 0 and figure(server, "units", "dir") >= 5, "written down")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_restores(tmp_path, end):
    with Server() as plain:
        expected = say(plain)[0]
    with Server(*options(tmp_path / "kv")) as server:
        assert say(server) == (expected, 0)
        stored(server)
        server.signal(end)
        server.process.wait(60)
    with Server(*options(tmp_path / "kv")) as server:
        text, cached = say(server)
        assert (text, cached) == (expected, 640)
        assert figure(server, "restored_units_total", "dir") == 5
        assert figure(server, "restored_bytes_total", "dir") > 5 * 128 * 534  # units, and the snapshot
        assert figure(server, "corrupt_total", "dir") == 0
        assert say(server) == (expected, 640)
        assert figure(server, "restored_units_total", "dir") == 5, "the second time it is on the device"


@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES, COMPLETIONS])
def test_every_api_says_how_its_prefix_is_kept(tmp_path, api):
    with Server(*options(tmp_path / "kv")) as server:
        first = say(server, api, cache={"class": "agent", "ttl": 3600, "pin": True})
        assert first[1] == 0
        status, _, body = ask(server, "POST", api, {**question(api, "Hello", max_tokens=2), "cache": {"class": "boss"}})
        assert status in (400, 422) and b"class" in body
        status, _, body = ask(server, "POST", api, question(api, "Hello", max_tokens=2), headers={"x-deepinfer-cache": "class=boss"})
        assert status == 400 and b"class=boss" in body
        status, _, body = ask(server, "POST", api, question(api, WORDS, max_tokens=2), headers={"x-deepinfer-cache": "class=agent; pin"})
        assert status == 200 and cached_of(api, json.loads(body)) > 0


def test_tenants_never_share(tmp_path):
    with Server(*options(tmp_path / "kv"), "--api-key", "one", "--api-key", "two", key="one") as server:
        expected = say(server)
        stored(server)
    with Server(*options(tmp_path / "kv"), "--api-key", "one", "--api-key", "two", key="two") as server:
        assert say(server) == (expected[0], 0)
        assert figure(server, "restored_units_total", "dir") == 0
        server.key = "one"
        assert say(server) == (expected[0], 640)


def test_the_admin_lists_pins_and_purges(tmp_path):
    extra = ("--admin-port", 0, "--trust-tenant-header")
    with Server(*options(tmp_path / "kv"), *extra) as server:
        say(server)
        stored(server)
        tiers = {tier["name"]: tier for tier in server.admin("GET", "/admin/cache")["tiers"]}
        assert set(tiers) == {"memory", "dir"} and tiers["dir"]["units"] == 5 and tiers["dir"]["max_bytes"] == 256 << 20
        tenant = server.admin("GET", "/admin/cache/tenants")["tenants"][0]
        assert (tenant["tier"], tenant["units"], tenant["pinned_bytes"]) == ("dir", 5, 0) and tenant["bytes"] >= 5 * 128 * 534
        listed = [json.loads(line) for line in cache_stats(tmp_path / "kv", "--tenants")]
        assert [one["tenant"] for one in listed] == [tenant["id"]] and listed[0]["bytes"] == tenant["bytes"]
        assert cache_stats(tmp_path / "kv", "--tenant", tenant["name"]) and not cache_stats(tmp_path / "kv", "--tenant", "nobody")
        assert server.admin("POST", "/admin/tenants/somebody/pin-cache")["action"] == "pin-cache"
        server.admin("POST", "/admin/cache/purge")
        assert say(server)[1] == 0, "a purge holds from its answer on"
        stored(server)
    with Server(*options(tmp_path / "kv"), *extra) as server:
        assert say(server)[1] == 640, "what came behind the purge is kept"


def test_replay_has_a_name_space_of_its_own(tmp_path):
    with Server(*options(tmp_path / "kv")) as server:
        say(server)
        stored(server)
    for replay in ("encoder", "decoder", "both"):
        with Server(*options(tmp_path / "kv"), "--replay", replay) as server:
            assert say(server)[1] == 0
            assert figure(server, "restored_units_total", "dir") == 0
            stored(server)


def test_two_servers_share_a_folder(tmp_path):
    shared = ("--cache-shared", tmp_path / "kv", "--cache-shared-bytes", "256M", "--cache-ram", "64M", "--cache-load", "always")
    with Server(*shared) as one, Server(*shared) as two:
        expected = say(one)
        assert expected[1] == 0
        until(lambda: figure(one, "units", "shared") >= 5, "written down")
        assert until(lambda: (got := say(two))[1] == 640 and got, "the other one finds it") == (expected[0], 640)


@pytest.mark.parametrize("wrong", [("--cache-bytes", "5X"), ("--cache-ram", "-1"), ("--cache-shared-bytes", "1025T"), ("--cache-tenant-bytes", ""),
                                   ("--cache-load", "maybe"), ("--replay", "maybe"), ("--cache-dir", "kv", "--no-prefix-cache")])
def test_options_that_make_no_sense_are_refused(tmp_path, wrong):
    done = subprocess.run([BINARY, "serve", "--port", "0", *wrong], cwd=tmp_path, capture_output=True, timeout=60, text=True)
    assert done.returncode == 2 and wrong[0].replace("--cache-dir", "--no-prefix-cache") in done.stderr, done.stderr


def test_a_budget_that_is_too_small_names_the_one_that_is_needed(tmp_path):
    done = subprocess.run([BINARY, "serve", "--port", "0", "--cache-dir", tmp_path / "kv", "--cache-bytes", "20M"], capture_output=True, timeout=60,
                          text=True)
    assert done.returncode == 1 and "records need 25165824" in done.stderr, done.stderr
