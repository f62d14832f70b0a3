"""Agents that misbehave: the loop ends as it should, and leaves nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import misbehaving_agent
from tests.support.agent_script import TRUSTED
from tests.support.processes import left
from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

PROMISED, FAILED = ("promise", 1, 0), ("max-failures", 1, 124)
LONG = b"> a line of %d bytes, see output.log\n" % (
    misbehaving_agent.BIG + len(misbehaving_agent.says("")) - 1
)
CASES = {
    "cut-character": (PROMISED, "à bientôt\n".encode()),
    "cut-value": (PROMISED, b""),
    "cut-off": (("max-stalls", 1, 0), b"Soon.\n" + misbehaving_agent.ANSWER[: -len(b'"}\n')] + b"\n"),
    "long-line": (PROMISED, LONG),
    "invalid": (PROMISED, b"\xff\xfe\xc3(\nSo\xef\xbf\xbd\n"),
    "interleaved": (PROMISED, b"One.\n"),
    "silent": (("max-stalls", 1, 0), b""),
    "unread": (PROMISED, b""),
    "daemonises": (PROMISED, b""),
    "other-group": (FAILED, b"Hm.\n"),
    "deaf": (FAILED, b"Hm.\n"),
    "closed": (PROMISED, b""),
}


def _run(repo: Repo, way: str) -> Result:
    agent = [sys.executable, os.fspath(Path(misbehaving_agent.__file__)), way]
    repo.write(".ralph/config.toml", f'[agents.odd]\ncommand = {json.dumps(agent)}\noutput = "claude"\n')
    repo.write("prompt", "x" * 1_000_000)  # more than a pipe holds
    limits = ["--max-stalls", "1", "--max-failures", "1", "--grace", "300ms"]
    if CASES[way][0] == FAILED:
        limits += ["--idle-timeout", "4s"]
    return run(repo.path, "-a", "odd", "-f", "prompt", *limits, env=TRUSTED)


@pytest.mark.parametrize("way", CASES)
def test_the_loop_ends_as_it_should(repo: Repo, home: Path, way: str) -> None:
    """What was understood is shown and counts, and no process or worktree stays."""
    result = _run(repo, way)
    assert (result.ending, result.stdout) == CASES[way]
    assert (left(home), repo.worktrees()) == ({}, [])
    assert {"step.failed", "session.failed"} & {*result.names} == set()
    (result.directory or home).joinpath("output.log").unlink()


def test_every_way_is_tried() -> None:
    """None is forgotten."""
    assert CASES.keys() == misbehaving_agent.WAYS.keys()


@pytest.mark.parametrize(
    ("way", "path", "content"), [("closed", "late", b"done"), ("daemonises", "daemon", b"here")]
)
def test_what_was_left_is_saved(repo: Repo, way: str, path: str, content: bytes) -> None:
    """By an agent that goes on without its output, and by what it has left running."""
    assert repo.show(f"{_run(repo, way).report['saved']}:{path}") == content
