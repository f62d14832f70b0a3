"""Where errors become words: a reader that goes away is none."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.cli.boundary import boundary
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.mark.parametrize(
    "words",
    [
        ("ps", "--all"),
        ("review",),
        ("review", "--json"),
        ("doctor",),
        ("worktree", "list"),
        ("logs", "{id}"),
        ("drop", "nope", "--json"),  # an error, on stdout
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_away_ends_a_command(repo: Repo, words: tuple[str, ...]) -> None:
    """As SIGPIPE ends others, and without a word."""
    made = subprocess.run(
        (PROGRAM, "run", "-n", "1", "--", "sh", "-c", "echo a; git commit -q --allow-empty -m a"),
        cwd=repo.path,
        check=True,
        capture_output=True,
    )
    assert made.stdout == b"a\n"
    (branch,) = [name for name in repo.branches() if name.startswith("ralph/")]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        (PROGRAM, *(word.format(id=branch.removeprefix("ralph/")) for word in words)),
        cwd=repo.path,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_an_error_of_the_system_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A full disk is no bug: reason and hint, without a traceback."""
    with pytest.raises(SystemExit) as ended, boundary("apply", json=False):
        raise OSError(errno.ENOSPC, "No space left on device", "/x/file")
    [line] = capfd.readouterr().err.splitlines()
    printed = json.loads(line)
    assert (ended.value.code, printed["message"]) == (125, "No space left on device: /x/file")
    assert printed["hint"] == "make room on the disk: df -h /x"


def test_a_bug_has_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """Negative control: its report needs one."""
    with pytest.raises(SystemExit) as ended, boundary("apply", json=False):
        raise ValueError("x")
    assert ended.value.code == 125
    assert "Traceback" in capfd.readouterr().err
