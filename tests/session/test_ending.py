"""A step of a session's end that fails: what the user sees, and what the event log has."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.session.ending import run_step
from ralph_wrap.system.log import Log

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "full disk": (
        OSError(errno.ENOSPC, "No space left on device", "/x/report.json"),
        "could not save: No space left on device: /x/report.json",
        "make room on the disk: df -h /x\nthe work is where it was",
    ),
    "another error of the system": (
        PermissionError(errno.EACCES, "Permission denied"),
        "could not save: Permission denied",
        "to see what is wrong here: ralph-wrap doctor\nthe work is where it was",
    ),
    "git": (
        GitError("update-ref", 128, "fatal: cannot lock ref\n"),
        "could not save: git update-ref failed (128): fatal: cannot lock ref",
        "the work is where it was",
    ),
    "ours": (
        RefusedError("it changed", "ralph-wrap rm 1a2b"),
        "could not save: it changed",
        "ralph-wrap rm 1a2b\nthe work is where it was",
    ),
}


def _failed(error: Exception, path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a step that fails; return what stderr and the event log got."""
    reading, writing = os.pipe()
    log = Log(writing, terminal=False, colour=False, as_json=True)
    log.attach(path)

    def fail() -> None:
        raise error

    with log.in_use():
        run_step("save", fail)
    log.close()
    os.close(writing)
    with os.fdopen(reading) as stderr:
        printed = [json.loads(line) for line in stderr]
    return printed, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("case", EXPECTED)
def test_an_expected_error_is_one_line(case: str, tmp_path: Path) -> None:
    """With the reason and a hint; the traceback is in the event log alone."""
    error, message, hint = EXPECTED[case]
    printed, logged = _failed(error, tmp_path / "events.jsonl")
    assert [(line["message"], line["hint"]) for line in printed] == [(message, hint)]
    assert "Traceback" not in json.dumps(printed)
    assert "Traceback" in json.dumps(logged)


def test_a_bug_shows_its_traceback(tmp_path: Path) -> None:
    """Negative control: without it a user could not report the bug."""
    printed, _ = _failed(ValueError("x"), tmp_path / "events.jsonl")
    assert "Traceback" in json.dumps(printed)
