"""Sessions that look outside their worktree."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from tests.support.repo import Repo
from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.sessions import Result


def session(repo: Repo, agent: str, *options: str, prepared: str = "") -> Result:
    """Run a session of one iteration, unless options say more, after something was done in the checkout."""
    repo.write(".gitignore", ".ralph/worktrees/\n*.swp\n")
    repo.commit("second")
    if prepared:
        command_line(repo, prepared)
    return run(repo.path, "-n", "1", *options, "--", "sh", "-ec", agent)


def command_line(repo: Repo, words: str) -> None:
    """Type something in the main checkout."""
    assert os.waitstatus_to_exitcode(os.system(f"cd {shlex.quote(str(repo.path))} && {words}")) == 0  # noqa: S605


def leaks(result: Result) -> list[str]:
    """Return what was found during the first iteration, without ids of objects and commands."""
    assert result.status == 0, result.stderr
    found = result.report["leaks"]
    assert all(line.startswith("during iteration 1: ") for line in found)
    words = [re.sub(r"; to [a-z ]+: git .*", "", line) for line in found]
    words = [re.sub(r"\bralph/[0-9a-f]{4}\b", "ralph/ID", line) for line in words]
    return [re.sub(r"\b[0-9a-f]{7}\b", "ID", line.removeprefix("during iteration 1: ")) for line in words]
