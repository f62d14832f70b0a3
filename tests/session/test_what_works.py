"""Whole sessions with other gits, other kinds of repositories and other settings: nothing is lost.

``what_works.py`` has the rows. Each of them is looked at with plain git afterwards.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.session.what_works import ROWS, Outcome, Row
from tests.support.sessions import Result, Session, command, run
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path


def rows(outcome: Outcome) -> pytest.MarkDecorator:
    """Return what runs a test with each row of this outcome."""
    return pytest.mark.parametrize(
        "row", [row for row in ROWS if row.result is outcome], ids=lambda row: " | ".join(row.cells[:3])
    )


WHOLE = rows(Outcome.WORKS)

FILES = {
    ".gitignore": ".ralph/worktrees/\n",
    "both": "staged before\nand not staged\n",
    "committed": "a committed line\n",
    "deep/er/a file": "an untracked line\n",
    "file.txt": "file.txt\n" * 20 + "an unstaged line\n",
    "renamed": "moved\n" * 20,
    "staged": "a staged line\n",
    "untracked": "an untracked line\n",
}
"""What an agent leaves in its worktree."""

REST = """
[ -e untracked ] || {
    echo 'and not staged' >> both
    echo 'an unstaged line' >> file.txt
    echo 'an untracked line' > untracked
    mkdir -p deep/er; cp untracked 'deep/er/a file'
}
if [ "${HOLD:-}" ]; then : > "$HOLD"; exec sleep 600; fi
"""
"""What each agent does without git."""

_NO_HINTS = ("-c", "advice.sparseIndexExpanded=false")
"""From 2.46 on, git has words for a sparse index, which are no complaint."""


class Project:
    """The repository of a row, its user, and the agent."""

    def __init__(self, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):  # the sealed day is older than reflogs become
            monkeypatch.delenv(name)
        inside = row.program_path(row.agents_git)
        agent = tmp_path / "agent"
        agent.write_text(
            f"#!/bin/sh\nset -eu\nPATH={shlex.quote(inside)}; export PATH\n{row.command()}\n{REST}"
        )
        agent.chmod(0o755)
        self.agent = os.fspath(agent)
        self.hold = tmp_path / "done"
        self.row = row
        self._monkeypatch = monkeypatch
        self.use(row.users_git)
        self.repo = row.make(tmp_path / "project")
        self.use(row.git)
        self._enough = tmp_path / "enough"
        self._beside: subprocess.Popen[bytes] | None = None

    def use(self, git: str) -> None:
        """Have a git on the PATH, by its directory."""
        self._monkeypatch.setenv("PATH", self.row.program_path(git))

    def start_beside(self) -> None:
        """Have the user's git do what it does beside the sessions, again and again; once it must succeed.

        Git 2.55 sometimes fails beside another maintenance: each deletes packs that the other one reads.
        """
        if self.row.beside:
            loop = 'until [ -e "$0" ]; do "$@" && once=1; done; [ "$once" ]'
            words = ("sh", "-c", loop, os.fspath(self._enough), "git", *self.row.beside)
            self._beside = subprocess.Popen(words, cwd=self.repo.path)

    def end_beside(self) -> None:
        """Wait for its end, and finish what waited for it, too."""
        if self._beside is None:
            return
        self._enough.touch()
        assert self._beside.wait(CAP) == 0
        self._beside = None
        swept = command("sweep", cwd=self.repo.path)
        assert swept.status == 0, swept.stderr

    def run(self) -> Result:
        """Run a session of one iteration to its end."""
        return run(self.repo.path, "--isolation", "require", "-n", "1", "--", self.agent)

    def files(self, revision: str) -> dict[str, str]:
        """Return the files of a commit."""
        names = self.repo.git("ls-tree", "-r", "-z", "--name-only", revision).rstrip("\0").split("\0")
        return {name: self.repo.show(f"{revision}:{name}").decode() for name in names}

    def check(self, branch: str) -> None:
        """Check with plain git that all of an agent's work is on two branches, and nothing else is left."""
        self.end_beside()
        assert self.files(f"{branch}-wip") == FILES
        assert self.files(f"{branch}-wip^2")["both"] == "staged before\n"
        assert {"gone", "moved", "committed"} <= {*self.files(branch)}
        assert "staged" not in self.files(branch)
        self.check_repository()

    def check_repository(self) -> None:
        """Check that plain git finds nothing wrong, and no worktree."""
        self.end_beside()
        repo = self.repo
        assert [path for path in repo.worktrees() if ".ralph" in path] == []
        assert [*repo.path.glob(".ralph/worktrees/*")] == []
        done = subprocess.run(
            ("git", *_NO_HINTS, "fsck", "--full", "--strict", "--no-dangling", "--no-progress"),
            cwd=repo.path, capture_output=True, check=False, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        repo.git("log", "--all", "--oneline")
        repo.git("gc", "--quiet")
        repo.git("log", "--all", "--oneline")


@pytest.fixture
def project(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the project of a row."""
    row.require()
    made = Project(row, tmp_path, monkeypatch)
    made.start_beside()
    return made


@WHOLE
def test_a_session_that_ends_leaves_all_work_on_its_branches(project: Project) -> None:
    """What was committed, staged, changed, deleted, renamed, new: all of it, and no worktree."""
    ended = project.run()
    assert ended.status == 0, ended.stderr
    assert ended.report["kept"] is None or project.row.beside
    project.check(ended.report["branch"])


@WHOLE
def test_a_sweep_saves_what_a_killed_session_left(project: Project) -> None:
    """The same after a SIGKILL."""
    repo = project.repo
    options = ("--isolation", "require", "-n", "1", "--", project.agent)
    with Session(repo.path, *options, env={"HOLD": os.fspath(project.hold)}) as session:
        eventually(project.hold.exists, "the agent's work")
        directory = session.directory
    swept = command("sweep", cwd=repo.path)
    assert swept.status == 0 or project.row.beside, swept.stderr
    project.check(f"ralph/{directory.name[-4:]}")


@WHOLE
def test_a_resumed_session_goes_on_with_all_work(project: Project) -> None:
    """The agent finds its commit and its files, and commits what it had staged."""
    first = project.run()
    assert first.status == 0, first.stderr
    resumed = command("resume", first.report["id"], cwd=project.repo.path)
    assert resumed.status == 0, resumed.stderr
    branch = first.report["branch"]
    project.end_beside()
    committed = project.files(branch)
    assert committed["resumed"] == "the agent's\n"
    assert project.files(f"{branch}-wip") == {**FILES, "resumed": "the agent's\n"}
    project.check_repository()


@rows(Outcome.REFUSED)
def test_a_session_says_which_git_it_needs_and_makes_nothing(project: Project) -> None:
    """It does not start in the checkout either, and leaves no trace in the repository."""
    for options in ((), ("--isolation", "require")):
        done = run(project.repo.path, *options, "-n", "1", "--", project.agent)
        assert done.status == 125
        assert project.row.says in done.stderr
        assert done.directory is None
    project.use(project.row.users_git)
    assert project.repo.git("for-each-ref", "refs/heads/ralph", "refs/ralph") == ""
    assert project.repo.git("status", "--porcelain") == ""
    project.check_repository()


@rows(Outcome.KEPT)
def test_a_worktree_is_kept_that_only_another_git_can_read(project: Project) -> None:
    """The message says why, each file is still there, and a sweep with the other git leaves nothing."""
    repo = project.repo
    ended = run(repo.path, "-n", "1", "--", project.agent)
    assert project.row.says in ended.report["kept"], ended.stderr
    (kept,) = repo.path.glob(".ralph/worktrees/*")
    assert {name: (kept / name).read_text() for name in FILES} == FILES
    project.use(project.row.users_git)
    removed = command("rm", ended.report["id"], cwd=repo.path)
    assert removed.status == 0, removed.stderr
    project.check(f"ralph/{ended.report['id']}")
