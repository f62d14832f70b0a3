"""Find the repository and the checkout of a directory."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import (
    FIRST_COMMIT,
    TO_SEE_DAMAGE,
    DamagedRepositoryError,
    GitError,
    GitTooOldError,
    NoCheckoutError,
    NotARepositoryError,
    TamperedError,
    UntrustedError,
)
from ralph_wrap.git import pointer
from ralph_wrap.git.command import Git, decode, decode_lines, finish_git, run_git, start_git
from ralph_wrap.git.worktrees import list_worktrees
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command

OLDEST = (2, 15)
"""The oldest git version with which a session can run in a worktree."""

OLDEST_TESTED = (2, 30)
NEWEST_TESTED = (2, 55)
"""The oldest and the newest git version whose answers are tested (``tests/git/test_beliefs.py``).

Versions answer differently where an object is damaged or a ref is broken, so another one may do so, too.
"""

EXTENSIONS = {
    "objectformat": ("objectFormat", (2, 29)),
    "refstorage": ("refStorage", (2, 45)),
    "compatobjectformat": ("compatObjectFormat", (2, 45)),
    "relativeworktrees": ("relativeWorktrees", (2, 48)),
}
"""Each extension of a repository (git-config(1): ``extensions.*``) without which an older git refuses it."""


class Repository(NamedTuple):
    """The repository and the checkout of a directory.

    Attributes:
        root: top level of the checkout, resolved.
        common_dir: the git directory that all worktrees share, resolved.
        prefix: path of the directory below *root*.
        head: the commit at HEAD, ``None`` before the first commit.
        git_version: version of the git that was asked.
        file_mode: the file system supports executable files (git-config(1): core.fileMode).
        symlinks: the file system supports symlinks (core.symlinks).
        names_committer: the configuration has a name and an e-mail address for the committer.

    """

    root: Path
    common_dir: Path
    prefix: Path
    head: str | None
    git_version: tuple[int, ...]
    file_mode: bool
    symlinks: bool
    names_committer: bool

    def checkout(self, git: Git) -> Git:
        """Return git for the checkout, in which no command searches for the repository."""
        git_dir = pointer.git_dir_of(self.root)
        return git._replace(cwd=self.root, git_dir=git_dir, common_dir=self.common_dir, work_tree=self.root)


class RepositoryCopies(NamedTuple):
    """Copies of the repositories below a git directory in which no git of ours may run.

    Attributes:
        original: the git directory.
        copy: the directory with the copies, by the same names.

    """

    original: Path
    copy: Path

    def of(self, git_dir: Path) -> Path | None:
        """Return the copy of a repository, ``None`` if there is none."""
        if not git_dir.is_relative_to(self.original):
            return None
        found = self.copy / git_dir.relative_to(self.original)
        return found if (found / "HEAD").is_file() else None


def parse_version(output: bytes) -> tuple[int, ...]:
    """Parse ``git version 2.39.5 (Apple Git-154)``; an unreadable version counts as new enough."""
    match = re.match(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", output)
    return tuple(int(part) for part in match.groups() if part) if match else OLDEST


def locate_repository(git: Git) -> Repository:
    """Find the repository of a directory.

    Arguments:
        git: in the directory.

    Raises:
        GitTooOldError: git is older than 2.15.
        NotARepositoryError: the directory is in no repository.
        NoCheckoutError: the directory is in no checkout: the repository is bare, for example.
        DamagedRepositoryError: it is damaged.
        UntrustedError: git refuses it, and another user owns it.
        TamperedError: a file in the git directory names another repository.
        GitError: git does not end in time.
        OSError: git is not installed.

    """
    # A path may contain a newline. rev-parse prints an unknown option as it is, so this one separates paths.
    separator = "--ralph-wrap-separator"
    arguments = ("--show-toplevel", separator, "--git-common-dir", separator, "--show-prefix", separator)
    answer = run_git(_traced(git), "rev-parse", *arguments, "HEAD^{commit}", accept=range(256))
    git_version, config = _parse_trace(answer.stderr) or _ask_version_and_config(git)
    if git_version < OLDEST:
        number = ".".join(map(str, git_version))
        raise GitTooOldError(f"git {number} is older than 2.15", "install git 2.30 or newer")
    if answer.status != 0:
        _require_checkout(git)
        answer = run_git(git, "rev-parse", *arguments)  # the repository has no commit yet
    top, common, prefix, head = decode(answer.stdout).split(f"{separator}\n")
    root, common_dir = Path(top[:-1]).resolve(), (git.cwd / common[:-1]).resolve()
    if not (root / ".git").exists():
        shared = shlex.quote(str(common_dir / "config"))
        raise TamperedError(
            f"core.worktree of {common_dir} leads to {root}, which is not the checkout of this repository",
            f"git config --file {shared} --unset-all core.worktree",
        )
    if (own := pointer.common_dir_by_place(root)) != common_dir:
        raise TamperedError(
            f"{root}/.git says that its repository is {common_dir}, which is not the one at its place: {own}",
            f"if another program changed it: rm {shlex.quote(str(pointer.git_dir_of(root) / 'commondir'))}",
        )
    return Repository(
        root=root,
        common_dir=common_dir,
        prefix=Path(prefix[:-1]),
        head=head.strip() or None,
        git_version=git_version,
        file_mode=config.get("core.filemode", "true") not in _NO,
        symlinks=config.get("core.symlinks", "true") not in _NO,
        names_committer=all(any(map(str.isalnum, config.get(key, ""))) for key in _COMMITTER),
    )


_NAMED = 3  # checkouts in a hint
_NO = {"false", "no", "off", "0", ""}  # git-config(1): boolean
_COMMITTER = ("user.name", "user.email")
_KEYS = ("core.filemode", "core.symlinks", *_COMMITTER)
_TRACE = {"GIT_TRACE2": "2", "GIT_TRACE2_BRIEF": "1", "GIT_TRACE2_CONFIG_PARAMS": ",".join(_KEYS)}


def _traced(git: Git) -> Git:
    """Return git that prints its version and our keys on stderr (api-trace2), so that one process tells all.

    The user may trace git, too: then the trace goes where the user wants it.
    """
    return git if _TRACE.keys() & git.env.keys() else git._replace(env={**git.env, **_TRACE})


def _parse_trace(stderr: bytes) -> tuple[tuple[int, ...], dict[str, str]] | None:
    """Return version and keys; ``None`` without a trace: git before 2.22, or the user's choice."""
    version, config = None, {}
    for line in decode(stderr).split("\n"):
        kind, _, rest = line.partition(" ")
        if kind == "version" and version is None:
            version = parse_version(f"git {line}".encode("utf-8", "surrogateescape"))
        elif kind == "def_param":
            # New versions name the scope. A key without a value is true, and old ones print "(null)".
            key, separator, value = rest[rest.startswith("scope:") and rest.find(" ") + 1 :].partition("=")
            config[key] = value if separator and value != "(null)" else "true"
    return None if version is None else (version, config)


def _ask_version_and_config(git: Git) -> tuple[tuple[int, ...], dict[str, str]]:
    keys = "|".join(map(re.escape, _KEYS))
    with (
        start_git(git, "version") as version,
        start_git(git, "config", "-z", "--get-regexp", f"^({keys})$") as configured,
    ):
        numbers = parse_version(finish_git(version, "version").stdout)
        return numbers, _parse_config(finish_git(configured, "config", accept=range(256)).stdout)


def _parse_config(output: bytes) -> dict[str, str]:
    entries = (decode(entry).partition("\n") for entry in output.split(b"\0") if entry)
    # A key without a value is true: "[core] symlinks" (git-config(1)).
    return {key: value if newline else "true" for key, newline, value in entries}


def file_system_config(*, file_mode: bool, symlinks: bool) -> tuple[str, ...]:
    """Return git arguments for what a file system supports; an agent may have changed the configuration."""
    return (
        *("-c", f"core.filemode={'true' if file_mode else 'false'}"),
        *("-c", f"core.symlinks={'true' if symlinks else 'false'}"),
    )


def _require_checkout(git: Git) -> None:
    asked = ("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    answer = run_git(git, *asked, config=("-c", "safe.bareRepository=all"), accept=(0, 128))
    if answer.status != 0:
        raise _no_repository(git, decode(answer.stderr))
    bare, inside = decode_lines(answer.stdout)
    if bare == "true" and git.cwd.joinpath(".git").is_dir():
        shared = shlex.quote(str(git.cwd / ".git" / "config"))
        raise DamagedRepositoryError(
            f"core.bare of {git.cwd / '.git'} says that there is no checkout, but {git.cwd} is one",
            f"git config --file {shared} core.bare false",
        )
    if bare == "true" and (top := _linked_worktree(git.cwd)):
        common_dir = pointer.common_dir_by_place(top)
        shared, own = (shlex.quote(str(common_dir / name)) for name in ("config", "config.worktree"))
        raise DamagedRepositoryError(
            f"core.bare of {common_dir / 'config'} says that there is no checkout, but {top} is one",
            Commands.of(
                f"git config --file {shared} --unset-all core.bare",
                f"git config --file {own} core.bare {'false' if common_dir.name == '.git' else 'true'}",
            ),
        )
    if bare == "true":
        raise NoCheckoutError(f"{git.cwd} is in a bare repository, not in a checkout of it", _checkouts(git))
    if inside != "true":
        raise NoCheckoutError(f"{git.cwd} is inside a git directory", _checkouts(git))


def _linked_worktree(directory: Path) -> Path | None:
    """Return the linked worktree that a directory is in, ``None`` if it is in none."""
    for path in (directory, *directory.parents):
        if os.path.lexists(path / ".git"):
            return path if pointer.git_dir_of(path).parent.name == "worktrees" else None
    return None


def _checkouts(git: Git) -> str:
    """Return the commands that go to the checkouts of the repository at a directory; empty without one."""
    git = git._replace(config=(*git.config, "-c", "safe.bareRepository=all"))
    try:
        listed = list_worktrees(git)
    except GitError:
        return ""
    places = [info.path for info in listed if info.head and info.path.is_dir() and _is_of_user(info.path)]
    if not places:
        return _to_make_a_checkout(git)
    return Commands.of(*(f"cd {shlex.quote(os.fspath(path))}" for path in places[:_NAMED]))


def _to_make_a_checkout(git: Git) -> str:
    """Return the command that makes a checkout beside a bare repository that has none."""
    try:
        directory = Path(decode(run_git(git, "rev-parse", "--absolute-git-dir").stdout).rstrip("\n"))
        head = run_git(git, "symbolic-ref", "--quiet", "--short", "HEAD", accept=(0, 1)).stdout
    except GitError:
        return ""
    place = directory.with_name(directory.name.removesuffix(".git") or "checkout")
    if os.path.lexists(place):
        place = directory.with_name(f"{directory.name}.checkout")
    branch = decode(head).strip() or "--detach"
    words = ("git", "-C", directory, "worktree", "add", place, branch)
    return f"make a checkout first: {command(*words)}"


def _is_of_user(path: Path) -> bool:
    return ".ralph" not in path.parts and os.path.lexists(path / ".git")


def _no_repository(git: Git, stderr: str) -> Exception:
    # No machine format names the reason, so the error shows git's own text.
    reason = str(GitError("rev-parse", 128, stderr))
    above = (parent for parent in (git.cwd, *git.cwd.parents) if os.path.lexists(parent / ".git"))
    if top := next(above, None):
        missing = _missing_repository(top)
        if missing is not None:
            main = missing.parent.parent.parent
            return NoCheckoutError(
                f"{top} is a linked worktree of the repository {missing.parent.parent}, which is not here",
                "in a container, mount it at the same path, too:"
                f" docker run -v {shlex.quote(f'{main}:{main}')}",
            )
        owners = {path.lstat().st_uid for path in (top, top / ".git")}
        if owners - {os.geteuid()}:
            # No fallback: the other user would choose what an agent does with our rights.
            return UntrustedError(
                f"{top} is a repository of user id {max(owners - {os.geteuid()})}: {reason}",
                "if you trust that user: "
                + command("git", "config", "--global", "--add", "safe.directory", top),
            )
        if newer := _extensions_of_newer_git(git, top):
            return newer
        return DamagedRepositoryError(
            f"git cannot use the repository of {top}: {reason}",
            f"to see what is wrong: {command('git', '-C', git.cwd, 'status')};"
            " to work without it: --isolation off",
        )
    return NotARepositoryError(f"{git.cwd} is not in a git repository", f"git init && {FIRST_COMMIT}")


def _extensions_of_newer_git(git: Git, top: Path) -> DamagedRepositoryError | None:
    """Return the error of a repository whose extensions this git does not know; ``None`` if it knows all."""
    outside = git._replace(cwd=Path("/"))  # in the repository, git warns of the extensions
    version = parse_version(run_git(outside, "version").stdout)
    config = pointer.common_dir_by_place(top) / "config"
    asked = ("config", "--file", config, "-z", "--get-regexp", r"^extensions\.")
    keys = _parse_config(run_git(outside, *asked, accept=range(256)).stdout)
    known = [EXTENSIONS[name] for key in keys if (name := key.partition(".")[2]) in EXTENSIONS]
    lacking = [(name, since) for name, since in known if since > version]
    if not lacking:
        return None
    own, needed = (".".join(map(str, numbers)) for numbers in (version, max(since for _, since in lacking)))
    words = ", ".join(f"extensions.{name}" for name, _ in lacking)
    return DamagedRepositoryError(
        f"git {own} cannot read the repository of {top}: a newer git has made it ({words})",
        f"put git {needed} or newer first on PATH; to see which one is first: git --version",
    )


def _missing_repository(top: Path) -> Path | None:
    """Return the registration that a linked worktree names, if it does not exist; else ``None``."""
    if (top / ".git").is_dir():
        return None
    named = pointer.git_dir_of(top)
    is_registration = named.parent.name == "worktrees" and not os.path.lexists(named.parent.parent)
    return named if is_registration else None


def require_new(git: Git) -> None:
    """Check that a repository without a commit at HEAD is a new one.

    Raises:
        DamagedRepositoryError: it has a ref, or HEAD names no branch.

    """
    head = run_git(git, "symbolic-ref", "--quiet", "HEAD", accept=range(256))
    refs = run_git(git, "for-each-ref", "--count=1", "--format=%(refname)", accept=range(256))
    if head.status != 0 or refs.status != 0 or refs.stdout or refs.stderr:
        name = decode(head.stdout).strip().removeprefix("refs/heads/")
        reason = next(iter(decode_lines(refs.stderr)), "the repository is not a new one")
        raise DamagedRepositoryError(
            f"git finds no commit at HEAD{f' (branch {name})' if name else ''}: {reason}",
            f"to see what is wrong: {command('git', '-C', git.cwd, *TO_SEE_DAMAGE.split()[1:])};"
            " to start from another commit: --base COMMIT",
        )


ABSOLUTE_POINTERS = ("-c", "worktree.useRelativePaths=false")
"""Relative paths add an extension to the shared configuration (git 2.48); older git and libgit2 refuse it."""


def is_ignored(git: Git, path: str) -> bool:
    """Return whether the ignore rules match a path; the path need not exist, and may be tracked.

    Arguments:
        path: relative.

    Raises:
        GitError: git cannot read the rules.

    """
    # --no-index: reading a large index takes long.
    return run_git(git, "check-ignore", "-q", "--no-index", path, accept=(0, 1)).status == 0
