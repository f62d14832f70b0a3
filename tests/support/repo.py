"""A scratch repository, driven by real git."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Repo:
    """A repository with one commit, unless it was made empty."""

    path: Path

    def git(self, *arguments: str | os.PathLike[str], check: bool = True, cwd: Path | None = None) -> str:
        """Run git in it and return what it printed, without the last newline."""
        done = subprocess.run(
            ("git", *arguments),
            cwd=cwd or self.path,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        errors = done.stderr.decode(errors="replace")
        assert not check or done.returncode == 0, f"git {arguments}: {done.returncode}: {errors}"
        return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    def write(self, path: str, content: str | bytes = "", *, executable: bool = False) -> Path:
        """Write a file, its directories made."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        if executable:
            target.chmod(0o755)
        return target

    def commit(self, message: str = "a commit") -> str:
        """Commit everything there is and return the commit's id."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.head

    @property
    def head(self) -> str:
        """The commit at HEAD."""
        return self.git("rev-parse", "HEAD")

    def branches(self) -> list[str]:
        """Return the names of all branches."""
        listed = self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/")
        return listed.split("\n") if listed else []

    def worktrees(self) -> list[str]:
        """Return the paths of linked worktrees, the main one left out."""
        rows = self.git("worktree", "list", "--porcelain").split("\n")
        return [row.removeprefix("worktree ") for row in rows if row.startswith("worktree ")][1:]

    def show(self, revision: str) -> bytes:
        """Return an object's content, byte for byte."""
        return subprocess.run(
            ("git", "cat-file", "-p", revision), cwd=self.path, capture_output=True, check=True
        ).stdout

    def fingerprint(self) -> dict[str, str]:
        """Return what a session must leave alone: HEAD, index, stash, configuration, hooks."""
        hooks = sorted((self.path / ".git" / "hooks").glob("*"))
        return {
            "HEAD": (self.path / ".git" / "HEAD").read_text(),
            "index": self.git("ls-files", "--stage", "--debug"),
            "stash": self.git("stash", "list"),
            "config": (self.path / ".git" / "config").read_text(),
            "hooks": "".join(f"{hook.name}:{hook.read_text()}" for hook in hooks),
            "fsck": self.git("fsck", "--no-dangling"),
        }


def make_repo(path: Path, *, empty: bool = False) -> Repo:
    """Make a repository on branch main with ``file.txt`` in one commit.

    It is a copy of one that git has made before, in the same configuration: a tenth of the time.
    """
    path.mkdir(parents=True, exist_ok=True)
    git = {name: value for name, value in os.environ.items() if name.startswith("GIT_")}
    configuration = Path(git.pop("GIT_CONFIG_GLOBAL", os.devnull))
    git.pop("GIT_CEILING_DIRECTORIES", None)
    content = configuration.read_bytes() if configuration.is_file() else b""
    template = _template(tuple(sorted(git.items())), content, empty)
    shutil.copytree(template, path, dirs_exist_ok=True)
    repo = Repo(path)
    if not empty:
        repo.git("update-index", "--refresh")  # the copies have other inodes
    return repo


@cache
def _template(_environment: tuple[tuple[str, str], ...], _configuration: bytes, empty: bool) -> Path:
    directory = tempfile.mkdtemp(prefix="ralph-wrap-template-")
    atexit.register(shutil.rmtree, directory)
    repo = Repo(Path(directory, "project"))
    repo.path.mkdir()
    repo.git("init", "--quiet", "--initial-branch=main")
    if not empty:
        repo.write("file.txt", "one\n")
        repo.commit("first")
    return repo.path
