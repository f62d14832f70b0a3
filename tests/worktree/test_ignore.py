"""Whether git ignores the worktrees already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import is_ignored, locate_repository
from ralph_wrap.worktree.ignore import is_hidden
from tests.git.repositories import git_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.repo import Repo

ROOT, EXCLUDE, INNER, BELOW = (
    ".gitignore",
    ".git/info/exclude",
    ".ralph/.gitignore",
    ".ralph/worktrees/.gitignore",
)

CASES: list[tuple[Mapping[str, str], bool]] = [
    ({ROOT: ".ralph/\n"}, True),
    ({ROOT: "/.ralph\r\n*.o\r\n"}, True),
    ({ROOT: "*.o\n.ralph/worktrees/"}, True),
    ({EXCLUDE: ".ralph/worktrees/\n"}, True),
    ({ROOT: ".ralph/\n", INNER: "!worktrees/\n", BELOW: "!*\n"}, True),
    ({ROOT: ".ralph/*\n"}, True),
    ({ROOT: "", EXCLUDE: ""}, False),
    ({ROOT: ".ralph/\n!.ralph/\n"}, False),
    ({ROOT: ".ralph/worktrees/\n", INNER: "!worktrees/\n"}, False),
    ({ROOT: "!/.ralph/\n", EXCLUDE: ".ralph/\n"}, False),
    ({ROOT: "# .ralph/\n x\r.ralph/\n"}, False),
]


@pytest.mark.parametrize(("contents", "hidden"), CASES)
def test_the_ignore_files_are_read_as_git_reads_them(
    repo: Repo, contents: Mapping[str, str], hidden: bool
) -> None:
    """With and without a git process the answer is the same, and a rule that is plain needs none."""
    for name, content in contents.items():
        repo.write(name, content)
    repository = locate_repository(git_in(repo.path))
    assert is_ignored(git_in(repo.path), ".ralph/worktrees/probe") == hidden
    assert is_hidden(git_in(repo.path), repository) == hidden


def test_a_plain_rule_needs_no_git(repo: Repo, tmp_path: Path) -> None:
    """A session of a project that has run sessions before starts one process less."""
    repo.write(ROOT, ".ralph/worktrees/\n")
    repository = locate_repository(git_in(repo.path))
    no_git = git_in(repo.path)._replace(env={"PATH": str(tmp_path)})
    assert is_hidden(no_git, repository)
