"""Where errors become words: a reader that goes away is none."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

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
