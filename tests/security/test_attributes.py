"""``.git/info/attributes``: no review shows it, and an agent can write it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import review
from ralph_wrap.git.safe.attributes import keep
from ralph_wrap.state.project import find_project
from tests.support.merging import branch
from tests.support.repo import Repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFLICT = 6


@pytest.fixture
def project(repo: Repo) -> Repo:
    """Return a project in which a branch and main change the same line."""
    repo.write("file.txt", "one\ntwo\n")
    repo.commit("base")
    branch(repo, "aaaa", {"file.txt": "of the agent\ntwo\n"})
    repo.write("file.txt", "of the user\ntwo\n")
    repo.commit("by the user")
    return repo


def _attributes(repo: Repo, line: str) -> None:
    repo.write(".git/info/attributes", f"{line}\n")


def _is_clean(repo: Repo) -> bool:
    """Return whether ``review`` says that the branch merges without conflicts."""
    [row] = review.look(find_project(repo.path, os.environ)).rows
    return row.conflicts_main is False


def test_no_line_of_an_agent_decides_how_files_merge(project: Repo, tmp_path: Path) -> None:
    """Review and merge find the conflict; plain git lands a union that no review has shown."""
    _attributes(project, "* merge=union")
    shutil.copytree(project.path, tmp_path / "copy")
    assert _is_clean(project) is False
    assert command("merge", "aaaa", "--despite-tampering", cwd=project.path).status == CONFLICT
    plain = Repo(tmp_path / "copy")
    plain.git("merge", "-q", "ralph/aaaa", "-m", "the attack")
    assert (plain.path / "file.txt").read_text() == "of the user\nof the agent\ntwo\n"


@pytest.mark.parametrize("line", ["* -diff", "* binary", "[attr]any -diff\n* any"])
def test_no_line_of_an_agent_hides_a_file_from_diff(project: Repo, line: str) -> None:
    """The text is shown; plain git says that binary files differ."""
    _attributes(project, line)
    assert b"+of the agent" in command("diff", "aaaa", cwd=project.path).stdout
    assert "Binary files" in project.git("diff", "main...ralph/aaaa")


def test_an_approved_driver_counts_in_review_and_in_merge(
    project: Repo, script: Callable[[str], str]
) -> None:
    """What review says is what merge does: before the approval a conflict, after it none."""
    driver = script('echo by the driver > "$1"')
    project.git("config", "merge.mine.driver", f"{driver} %A")
    _attributes(project, "file.txt merge=mine")
    assert _is_clean(project) is False
    assert command("merge", "aaaa", "--despite-tampering", cwd=project.path).status == CONFLICT
    assert command("trust", cwd=project.path).status == 0
    assert _is_clean(project) is True
    assert command("merge", "aaaa", "--despite-tampering", cwd=project.path).status == 0
    assert project.git("show", "main:file.txt") == "by the driver"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("*.psd filter=lfs diff=lfs merge=lfs -text", "*.psd filter=lfs -text"),
        ("* text=auto eol=crlf", "* text=auto eol=crlf"),
        ("  *.x\t!text -diff \r", "*.x !text"),
        ('"a \\" b" merge=union text', '"a \\" b" text'),
        ("[attr]mine -diff text", "[attr]mine text"),
        ("* mine binary merge diff", ""),
        ("*.y merge=approved diff=approved", "*.y merge=approved"),
        ("# * merge=union", ""),
        ('"open merge=union text', '"open text'),
    ],
)
def test_only_conversions_and_approved_drivers_are_kept(line: str, kept: str) -> None:
    """Git reads a pattern in quotes, a macro, and each sign before a name."""
    assert keep(line.encode(), {b"merge=approved"}).decode().rstrip("\n") == kept
