"""What works with what: the rows of the table in ``docs/compatibility.md``, each of which is a test."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.repository import parse_version
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Callable

GITS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ralph-wrap-gits"
"""Where ``tests/gits/install`` builds other gits; read before a test's own environment is made."""

USERS = Path(__file__).with_name("git_users")
"""Agents, each of which does the same work by another git."""

NEWEST = "newest"
_PATH = os.environ["PATH"]


class Outcome(StrEnum):
    """What becomes of a session."""

    WORKS = "works"
    REFUSED = "does not start"
    KEPT = "worktree kept"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        what: the first cell: what is used.
        agent: which of ``USERS`` does the work.
        git: the git of the session, by the name of its directory in ``GITS``; empty for that of the machine.
        agents_git: the same for the agent; ``None`` for that of the session.
        init: options of ``git init``.
        config: the repository's own configuration.
        prepare: done to the repository before a session.
        beside: what the user's git does again and again, while sessions run.
        maker: the git that makes the repository, by its directory; empty for that of the session.
        result: what becomes of a session.
        says: words of the message, if the session does not start or its worktree is kept.
        note: the last cell, if a user needs to know more.
        since: the git that has this, where the session may run with any git.

    """

    what: str
    agent: str = "git"
    git: str = ""
    agents_git: str | None = None
    init: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    prepare: Callable[[Repo], object] = field(default=lambda _: None)
    beside: tuple[str, ...] = ()
    maker: str = ""
    result: Outcome = Outcome.WORKS
    says: str = ""
    note: str = ""
    since: tuple[int, ...] = ()

    @property
    def users_git(self) -> str:
        """The git that looks at the result: it can read all that the others have written."""
        return self.maker or self.git

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table says."""
        session, agent = self.git or "any", self.agents_git or "the same"
        return self.what, session, agent, f"{self.result}: {self.note}" if self.note else self.result

    def program_path(self, git: str | None) -> str:
        """Return a ``PATH`` that finds a git; ``None`` for that of the session."""
        git = self.git if git is None else git
        return _PATH if is_of_the_machine(git) else f"{GITS / git / 'bin'}{os.pathsep}{_PATH}"

    def command(self) -> str:
        """Return a line of a shell script that does the agent's work."""
        if self.agent.startswith("git_") or self.agent == "git":
            return f"sh {USERS / 'with_git.sh'} {self.agent}"
        return f"{sys.executable} {USERS / 'with_python.py'} {self.agent}"

    def require(self) -> None:
        """Skip the test if a program is not here, or fail if the machine should have it."""
        for git in {self.git, self.agents_git or "", self.maker}:
            if not is_of_the_machine(git):
                _require(GITS / git / "bin" / "git", "REQUIRE_GITS", "tests/gits/install builds it")
        if self.since and not self.git and (found := _machines_version()) < self.since:
            pytest.skip(f"git {found} does not have it")

    def make(self, directory: Path) -> Repo:
        """Make a repository with this git and this configuration."""
        directory.mkdir()
        repo = Repo(directory)
        repo.git("init", "--quiet", "--initial-branch=main", *self.init)
        for name in ("gone", "moved", "both", "file.txt"):
            repo.write(name, f"{name}\n" * 20)
            repo.commit(f"the user's {name}")
        repo.write(".gitignore", ".ralph/worktrees/\n")
        repo.commit("rule")
        for key, value in self.config:
            repo.git("config", key, value)
        self.prepare(repo)
        return repo


@cache
def _machines_version() -> tuple[int, ...]:
    return parse_version(subprocess.run(("git", "version"), capture_output=True, check=True).stdout)


def is_of_the_machine(git: str) -> bool:
    """Return whether a git need not be built: it is that of the machine, whichever that is, or as old."""
    own = _machines_version()[:2]
    return not git or (not (GITS / git).exists() and git == ".".join(map(str, own)))


def _require(path: Path, variable: str, how: str) -> None:
    if path.exists():
        return
    reason = f"{path} is not there: {how}"
    if os.environ.get(variable) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _pack(repo: Repo) -> None:
    """Have packs, and a commit that nothing reaches but a reflog."""
    repo.git("repack", "-q", "-d")
    repo.write("more", "more\n")
    repo.commit("more")
    repo.git("reset", "-q", "--hard", "HEAD^")
    repo.git("repack", "-q", "-d")


def _write_commit_graph(repo: Repo) -> None:
    repo.git("commit-graph", "write", "--reachable", "--changed-paths", "--split")


def _write_multi_pack_index(repo: Repo) -> None:
    _pack(repo)
    repo.git("repack", "-q", "-d", "--write-midx", "--write-bitmap-index", "-a")
    repo.git("multi-pack-index", "write")


def _write_cruft(repo: Repo) -> None:
    _pack(repo)
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "--quiet", "--cruft")
    assert [*repo.path.glob(".git/objects/pack/*.mtimes")]


def _split_index(repo: Repo) -> None:
    repo.git("update-index", "--split-index")
    assert [*repo.path.glob(".git/sharedindex.*")]


def _watch_files(repo: Repo) -> None:
    """Have a hook of core.fsmonitor, version 2, which says that anything may have changed."""
    hook = repo.write(".git/hooks/watch", "#!/bin/sh\nprintf '1\\0/\\0'\n", executable=True)
    repo.git("config", "core.fsmonitor", os.fspath(hook))


def _enable_worktree_config(repo: Repo) -> None:
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "user.name", "A User")


def _be_sparse(repo: Repo) -> None:
    repo.git("sparse-checkout", "set", "--cone", "--sparse-index")


def _add_relative_worktree(repo: Repo) -> None:
    """Have a worktree of the user with relative paths, for which git sets the extension."""
    repo.git("-c", "worktree.useRelativePaths=true", "worktree", "add", "-q", "-b", "theirs", "../theirs")
    assert repo.git("config", "extensions.relativeWorktrees") == "true"


AGENTS = (
    Row("the same git"),
    Row("an older git for the agent", agents_git="2.30"),
    Row("the git of Debian 12 for the agent", agents_git="2.39"),
    Row("the git of Debian 13 for the agent", agents_git="2.47"),
    Row("the newest git for the agent", agents_git=NEWEST),
    Row("a newer git for the agent", git="2.30", agents_git=NEWEST),
    Row("an older git for the agent", git="2.47", agents_git="2.30"),
    Row("a much older git for the agent", git=NEWEST, agents_git="2.30"),
    Row("libgit2 (pygit2)", agent="pygit2"),
    Row("GitPython", agent="gitpython"),
    Row("dulwich", agent="dulwich"),
)

_SHA256 = ("--object-format=sha256",)
_REFTABLE = ("--ref-format=reftable",)

REPOSITORIES = (
    Row("`git init --object-format=sha256`", init=_SHA256),
    Row("`git init --object-format=sha256`", init=_SHA256, agents_git=NEWEST),
    Row("`extensions.worktreeConfig`", prepare=_enable_worktree_config),
    Row("a sparse checkout with a sparse index", prepare=_be_sparse, since=(2, 32)),
    Row("`git init --ref-format=reftable`", git="2.47", init=_REFTABLE),
    Row("`git init --ref-format=reftable`", git=NEWEST, init=_REFTABLE),
    Row("`git init --ref-format=reftable`", git=NEWEST, agents_git="2.47", init=_REFTABLE),
    Row(
        "`git init --ref-format=reftable`",
        git="2.39",
        maker="2.47",
        init=_REFTABLE,
        result=Outcome.REFUSED,
        says="put git 2.45 or newer first on PATH",
        note="it needs git 2.45",
    ),
    Row("`extensions.relativeWorktrees`", git=NEWEST, prepare=_add_relative_worktree),
    Row(
        "`extensions.relativeWorktrees`",
        git="2.39",
        maker=NEWEST,
        prepare=_add_relative_worktree,
        result=Outcome.REFUSED,
        says="put git 2.48 or newer first on PATH",
        note="it needs git 2.48",
    ),
    Row(
        "`extensions.relativeWorktrees`, set by the agent",
        agent="git_with_relative_worktree",
        git="2.39",
        maker=NEWEST,
        agents_git=NEWEST,
        result=Outcome.KEPT,
        says="unknown repository extension found: relativeworktrees",
        note="`ralph-wrap rm ID` with git 2.48 saves and removes it",
    ),
)

_INCREMENTAL = (
    ("maintenance.auto", "true"),
    ("maintenance.gc.enabled", "false"),
    ("maintenance.loose-objects.enabled", "true"),
    ("maintenance.loose-objects.auto", "1"),
    ("maintenance.incremental-repack.enabled", "true"),
    ("maintenance.incremental-repack.auto", "1"),
    ("maintenance.commit-graph.enabled", "true"),
    ("maintenance.commit-graph.auto", "1"),
)

SETTINGS = (
    Row("`feature.manyFiles`", config=(("feature.manyFiles", "true"),)),
    Row("`feature.manyFiles`", git=NEWEST, config=(("feature.manyFiles", "true"),)),
    Row("`feature.experimental`", config=(("feature.experimental", "true"),)),
    Row("`feature.experimental`", git=NEWEST, config=(("feature.experimental", "true"),)),
    Row("`index.version` 4", config=(("index.version", "4"),)),
    Row("`index.skipHash`", git=NEWEST, config=(("index.skipHash", "true"),)),
    Row("`index.skipHash`", agents_git=NEWEST, config=(("index.skipHash", "true"),)),
    Row("`core.splitIndex`", config=(("core.splitIndex", "true"),), prepare=_split_index),
    Row("`core.untrackedCache`", config=(("core.untrackedCache", "true"),)),
    Row("`core.fsmonitor`, a hook", prepare=_watch_files),
    Row("`core.fsmonitor`, built in", git=NEWEST, config=(("core.fsmonitor", "true"),)),
    Row("`core.fsyncMethod` batch", config=(("core.fsync", "all"), ("core.fsyncMethod", "batch"))),
    Row(
        "`core.fsyncMethod` writeout-only",
        config=(("core.fsync", "all"), ("core.fsyncMethod", "writeout-only")),
    ),
    Row("`worktree.useRelativePaths`", git=NEWEST, config=(("worktree.useRelativePaths", "true"),)),
)

MAINTENANCE = (
    Row(
        "a commit graph with generations v2",
        config=(("commitGraph.generationVersion", "2"),),
        prepare=_write_commit_graph,
    ),
    Row("a multi-pack index with bitmaps", prepare=_write_multi_pack_index, since=(2, 34)),
    Row("cruft packs", config=(("gc.cruftPacks", "true"),), prepare=_write_cruft, since=(2, 37)),
    Row("cruft packs", git=NEWEST, prepare=_write_cruft),
    Row(
        "`gc.reflogExpire=now`, and `git gc` again and again",
        config=(("gc.reflogExpire", "now"), ("gc.reflogExpireUnreachable", "now")),
        beside=("gc", "--quiet"),
    ),
    Row(
        "`maintenance.strategy=incremental`, its daily tasks again and again",
        config=(("maintenance.strategy", "incremental"),),
        beside=("maintenance", "run", "--quiet", "--schedule=daily"),
    ),
    Row(
        "`maintenance.auto` with incremental tasks, again and again",
        config=_INCREMENTAL,
        beside=("maintenance", "run", "--quiet", "--auto"),
    ),
    Row(
        "`maintenance.auto` with incremental tasks, again and again",
        git=NEWEST,
        config=_INCREMENTAL,
        beside=("maintenance", "run", "--quiet", "--auto"),
    ),
    Row(
        "`maintenance.strategy=geometric`, again and again",
        git=NEWEST,
        config=(("maintenance.strategy", "geometric"),),
        beside=("maintenance", "run", "--quiet"),
    ),
)

GROUPS = {
    "The git of the agent": AGENTS,
    "Kinds of repositories": REPOSITORIES,
    "Settings of git": SETTINGS,
    "Maintenance": MAINTENANCE,
}
ROWS = tuple(row for rows in GROUPS.values() for row in rows)


def table() -> str:
    """Return the tables of the page, from the rows."""
    parts = []
    for title, rows in GROUPS.items():
        lines = [f"| {' | '.join(row.cells)} |" for row in rows]
        head = ("| | git of the session | git of the agent | a session |", "| --- | --- | --- | --- |")
        parts.append("\n".join((f"## {title}\n", *head, *lines)))
    return "\n\n".join(parts) + "\n"
