"""What the files of a repository name: worktrees, HEAD and refs (gitrepository-layout(5)).

The ``.git`` file of a worktree, and of a submodule, holds ``gitdir: `` and the path of its git directory. A
relative path starts at the directory of the file. The file ``gitdir`` of a registration holds the path to
the ``.git`` file. An agent can write to both, so what they hold may be anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.git.oid import is_oid
from ralph_wrap.system import files

BACK = "gitdir"
"""The file of a registration that names the worktree."""

LONGEST = 4096
"""Bytes of either file, PATH_MAX."""

_BEGIN = "gitdir: "
_LARGEST_PACKED = 1 << 17  # bytes of packed-refs, for 2,000 refs: with more of them, git is faster
_PACKED_REFS = rb"(#.*\n)?([0-9a-f]{40,64} refs/.+\n|\^[0-9a-f]{40,64}\n)*"  # what git itself writes
_HEAD = rb"ref: (refs/heads(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+)\n"


# The .git file of a directory


def git_file_content(git_dir: str | Path) -> bytes:
    """Return the content of a ``.git`` file that names a git directory."""
    return os.fsencode(f"{_BEGIN}{git_dir}\n")


def target(content: str) -> str | None:
    """Return the path that a ``.git`` file holds, ``None`` if this is not the content of one."""
    return content.removeprefix(_BEGIN).rstrip("\n") if content.startswith(_BEGIN) else None


def git_dir_in(content: str, directory: Path) -> Path:
    """Return the git directory that a ``.git`` file names; symlinks are resolved.

    Arguments:
        content: of the file.
        directory: where the file belongs, if not where it is.

    """
    return real(directory / content.removeprefix(_BEGIN).rstrip("\n"))


def read(directory: Path, belongs: Path | None = None) -> Path:
    """Return the git directory that the ``.git`` file of a directory names; symlinks are resolved.

    Arguments:
        belongs: where it belongs, if it has been moved.

    Raises:
        OSError: there is no such file.

    """
    return git_dir_in(os.fsdecode(files.read(directory / ".git", LONGEST)), belongs or directory)


def git_dir_of(checkout: Path) -> Path:
    """Return the git directory of a checkout: what its ``.git`` file names, else ``.git`` itself."""
    try:
        return read(checkout)
    except OSError:
        return real(checkout / ".git")


# HEAD


def branch_at_head(git_dir: Path, common_dir: Path) -> tuple[str, str] | None:
    """Return full name and commit of the branch at HEAD, as the files say, without a git process.

    Returns:
        ``None`` if only git knows: HEAD is detached, or the branch is packed, symbolic or in a reftable. The
        same holds for a name with unusual characters (git-check-ref-format(1)).

    """
    try:
        head = re.fullmatch(_HEAD, files.read(git_dir / "HEAD", LONGEST))
        if head is None or b".." in head[1] or b".lock" in head[1]:
            return None
        name = os.fsdecode(head[1])
        commit = files.read(common_dir / name, LONGEST)
    except OSError:
        return None
    is_whole = commit.endswith(b"\n") and is_oid(commit[:-1].decode("ascii", "replace"))
    return (name, commit[:-1].decode()) if is_whole else None


# Refs


def names_below(common_dir: Path, *tops: str) -> bytes | None:
    """Return the names of all refs below some directories, one a line.

    Arguments:
        common_dir: the directory that all worktrees of the repository share.
        tops: directories, for example ``refs/heads/ralph``.

    Returns:
        The names, also of damaged refs; ``None`` if only git knows them. That is so with a reftable, with
        damaged files, and with anything else than directories and regular files.

    """
    if (common_dir / "reftable").exists():
        return None
    try:
        # In this order: git writes a ref to packed-refs before it deletes the ref's own file.
        loose = [name for top in tops for name in _loose(os.fspath(common_dir), top)]
        packed = _packed(common_dir / "packed-refs", tops)
    except OSError:
        return None
    return b"".join(b"%s\n" % name for name in (*loose, *packed))


def _loose(common_dir: str, top: str) -> Iterator[bytes]:
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            entries = os.scandir(f"{common_dir}/{directory}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                name = f"{directory}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif entry.is_file(follow_symlinks=False):
                    yield os.fsencode(name)
                else:
                    raise OSError(f"{name} is neither a directory nor a file")


def _packed(path: Path, tops: tuple[str, ...]) -> list[bytes]:
    try:
        content = files.read(path, _LARGEST_PACKED)
    except FileNotFoundError:
        return []
    if not re.fullmatch(_PACKED_REFS, content):
        raise OSError(f"{path} is damaged")
    below = "|".join(map(re.escape, tops))
    return re.findall(rf"(?m)^[0-9a-f]+ ((?:{below})/.+)$".encode(), content)


# The files of a registration


def gitdir_content(directory: Path) -> bytes:
    """Return the content of the file in a registration that names a directory."""
    return os.fsencode(directory / ".git") + b"\n"


def git_file_of(registration: Path) -> Path:
    """Return the ``.git`` file that a registration names.

    Raises:
        OSError: it does not say.

    """
    return Path(os.fsdecode(files.read(registration / BACK, LONGEST)).removesuffix("\n"))


def is_below_some_mount(content: bytes, directory: Path, parts: int) -> bool:
    """Return whether a registration names a directory, perhaps under the path of another mount.

    Arguments:
        content: of the file in the registration.
        parts: how many names at the end of its path are the same at every mount.

    """
    return content.endswith(b"/" + gitdir_content(Path(*directory.parts[-parts:])))


def common_dir_of(registration: Path) -> Path:
    """Return the repository that a registration says it belongs to.

    Raises:
        OSError: it does not say.

    """
    return real(registration / os.fsdecode(files.read(registration / "commondir")).removesuffix("\n"))


def checkout_of(registration: Path) -> Path:
    """Return the top of the checkout that a registration names.

    Raises:
        OSError: the registration cannot be read.

    """
    return real(git_file_of(registration).parent)


def common_dir_by_place(checkout: Path) -> Path:
    """Return the repository of a checkout, by the place of its git directory.

    Git believes the file ``commondir`` in a git directory, even in that of a main checkout. An agent can
    write the file and lead git to a repository of its own. Git itself creates it only in registrations, and
    these are at ``worktrees/<name>`` of their repository (gitrepository-layout(5)).
    """
    git_dir = git_dir_of(checkout)
    return git_dir.parent.parent if git_dir.parent.name == "worktrees" else git_dir


def real(path: Path) -> Path:
    """Resolve what an agent may have written: ``Path.resolve()`` breaks on NUL and on a loop of symlinks."""
    return Path(os.path.realpath(os.fspath(path).replace("\0", "?")))
