"""`./dev run` without a terminal answers the built-in question with the demo model; memory is used as it should be."""
import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["DI_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["DI_BIN"])
IN_PLACE = pathlib.Path(os.environ["DI_BUILD_DIR"]) == SOURCE / "build" / "release"

STORY = ("The rabbit looked at Jack and did not run away. Jack smiled and shared some bread with the rabbit. "
         "In the evening they left the village together.")


@pytest.mark.skipif(not IN_PLACE, reason="./dev run uses build/release")
def test_the_built_in_question_is_answered():
    done = subprocess.run([SOURCE / "dev", "run"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert STORY in done.stdout
    assert "installing" not in done.stderr


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_a_short_answer_is_clean_under_valgrind():
    done = subprocess.run(["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect",
                           BINARY, "generate", "--prompt", "Hello", "--max-tokens", "2"],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-4000:]
