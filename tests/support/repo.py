"""A scratch repository, driven by real git."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple


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
        # Each commit starts a second process, which looks whether there is something to pack.
        self.git("-c", "maintenance.auto=false", "commit", "--quiet", "--allow-empty", "--message", message)
        return self.head

    @property
    def head(self) -> str:
        """The commit at HEAD; git is asked only where no file of its own has it."""
        with contextlib.suppress(OSError):
            name = (self.path / ".git" / "HEAD").read_text().removeprefix("ref: ").strip()
            found = (self.path / ".git" / name).read_text().strip() if name.startswith("refs/") else name
            if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", found):
                return found
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
    template = _template(git_configuration(), empty)
    path.mkdir(parents=True, exist_ok=True)
    for directory in template.directories:
        (path / directory).mkdir(exist_ok=True)
    for name, (mode, file) in template.files.items():
        descriptor = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        os.write(descriptor, file)
        os.close(descriptor)
    if not empty:
        os.utime(path / "file.txt", ns=(template.made, template.made))  # git reads a file as new as its index
        refresh_index(path / ".git" / "index", path)
    return Repo(path)


class GitConfiguration(NamedTuple):
    """What decides how git makes a repository: its variables, and the user's configuration file."""

    environment: tuple[tuple[str, str], ...]
    file: bytes


def git_configuration() -> GitConfiguration:
    """Return the configuration of this process."""
    git = {name: value for name, value in os.environ.items() if name.startswith("GIT_")}
    file = Path(git.pop("GIT_CONFIG_GLOBAL", os.devnull))
    git.pop("GIT_CEILING_DIRECTORIES", None)
    return GitConfiguration(tuple(sorted(git.items())), file.read_bytes() if file.is_file() else b"")


class _Template(NamedTuple):
    made: int
    """Nanoseconds since the epoch."""
    directories: list[str]
    files: dict[str, tuple[int, bytes]]
    """Mode and content by path."""


@cache
def _template(_configuration: GitConfiguration, empty: bool) -> _Template:
    with tempfile.TemporaryDirectory(prefix="ralph-wrap-template-") as directory:
        repo = Repo(Path(directory, "project"))
        repo.path.mkdir()
        repo.git("init", "--quiet", "--initial-branch=main")
        if not empty:
            repo.write("file.txt", "one\n")
            repo.commit("first")
        made = sorted(repo.path.rglob("*"))
        return _Template(
            repo.path.stat().st_mtime_ns,
            [os.fspath(path.relative_to(repo.path)) for path in made if path.is_dir()],
            {
                os.fspath(path.relative_to(repo.path)): (path.stat().st_mode & 0o777, path.read_bytes())
                for path in made
                if path.is_file() and path.suffix != ".sample"  # git never runs a hook with this name
            },
        )


def refresh_index(index: Path, worktree: Path) -> None:
    """Do what ``git update-index --refresh`` does, without a process (gitformat-index(5), version 2).

    Arguments:
        index: of files that are as it says, but for times and inodes.
        worktree: which has them.

    """
    content, checksum = bytearray(index.read_bytes()[:-20]), index.read_bytes()[-20:]
    assert hashlib.sha1(content, usedforsecurity=False).digest() == checksum
    _, version, count = struct.unpack_from(">4sII", content)
    assert version == 2
    entry = 12
    for _ in range(count):
        end = content.index(0, entry + 62)
        found = (worktree / os.fsdecode(bytes(content[entry + 62 : end]))).lstat()
        if not stat.S_ISDIR(found.st_mode):  # a submodule has no times
            times = (divmod(nanoseconds, 10**9) for nanoseconds in (found.st_ctime_ns, found.st_mtime_ns))
            fields = (*itertools.chain(*times), found.st_dev, found.st_ino)
            struct.pack_into(">6I", content, entry, *(number & 0xFFFFFFFF for number in fields))
        entry += (end - entry) // 8 * 8 + 8
    index.write_bytes(content + hashlib.sha1(content, usedforsecurity=False).digest())
