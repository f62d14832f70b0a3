"""Ctrl-C while the program starts: it ends with status 130, and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import left
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")

POINTS = 20
"""Number of points at which each command gets the signal."""

HOOK = """
import os, sys

counted, at, path = None, int(os.environ["INTERRUPT_AT"]), os.environ["INTERRUPT_COUNT"]

def look(event, arguments):
    global counted
    if event != "import" or os.getpid() != ours:
        return
    if counted is None and arguments[0] == "ralph_wrap.interfaces":  # what comes after the handler
        counted = 0
    if counted is not None:
        counted += 1
        if not at:
            with open(path, "w") as file:
                file.write(str(counted))
        if counted == at:
            os.kill(ours, 2)

ours = os.getpid()
sys.addaudithook(look)
"""
"""Loaded by Python at its start: it sends SIGINT when the program imports its n-th module."""


def _interrupted(repo: Repo, tmp_path: Path, words: tuple[str, ...], at: int) -> tuple[int, str]:
    """Run a command that gets the signal at an import; return its status and its standard error."""
    (tmp_path / "hook").mkdir(exist_ok=True)
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    more = {
        "PYTHONPATH": os.fspath(tmp_path / "hook"),
        "INTERRUPT_AT": str(at),
        "INTERRUPT_COUNT": os.fspath(tmp_path / "count"),
    }
    command = (PROGRAM, *words)
    done = subprocess.run(
        command, cwd=repo.path, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("words", ["run -n 1 -- true", "review", "--help", "spawn -- true"])
def test_a_start_ends_at_ctrl_c(repo: Repo, tmp_path: Path, home: Path, words: str) -> None:
    """At each of many points; a session has left nothing."""
    command = tuple(words.split())
    assert _interrupted(repo, tmp_path, command, 0)[0] == 0
    count = int((tmp_path / "count").read_text())
    before = repo.branches()
    for at in sorted({1, 2, *range(3, count, max(1, count // POINTS))}):
        status, errors = _interrupted(repo, tmp_path, command, at)
        assert (status, "Traceback" in errors) == (130, False), (at, count, errors)
    if command[0] == "run":
        assert repo.branches() == before
    eventually(lambda: left(home) == {}, "everything to be gone")


def test_a_command_at_work_ends_at_ctrl_c(repo: Repo, tmp_path: Path) -> None:
    """While git runs for it."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 1000\n")
    git.chmod(0o755)
    env = {**os.environ, "PATH": f"{git.parent}:/usr/bin:/bin"}
    with subprocess.Popen(
        (PROGRAM, "review"), cwd=repo.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        eventually((tmp_path / "asked").exists, "git")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=CAP)
    assert (process.returncode, errors) == (130, b"")
