"""The part of a repository that a worktree holds, and its links to directories of the project.

Git's own ``sparse-checkout`` command writes to the configuration that all worktrees share, and several such
commands at once fail. So this module writes the patterns to the file that git reads (git-sparse-checkout(1):
INTERNALS). The environment of an agent switches the patterns on.

A linked directory is a symlink that ``git add`` must not see. ``target/`` in a ``.gitignore`` does not match
a symlink. So the worktree gets its own exclude file, with the rules of the user and the links.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ralph_wrap.errors import IsolationError, UsageError
from ralph_wrap.git import Git, decode, run_git
from ralph_wrap.system import files
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import EXCLUDES, LINKS

_PATTERNS = Path("info/sparse-checkout")
CONFIG = "ralph-wrap-config"
"""In a registration: the configuration that git needs for the layout."""

_LARGEST = 1 << 20  # bytes of a user's exclude file


class WorktreeLayout(NamedTuple):
    """The part of a repository that a worktree holds.

    Attributes:
        sparse: directories below the top level that git checks out in full; ``None`` for all directories. Git
            also checks out the files at the top level, and those in the parents of these directories.
        links: directories below the top level that are links to those of the project.

    """

    sparse: tuple[str, ...] | None = None
    links: tuple[str, ...] = ()


EVERYTHING = WorktreeLayout()


def check_layout(layout: WorktreeLayout, root: Path) -> None:
    """Make sure that no path of a layout leads out of a project, and that each linked directory exists.

    Arguments:
        layout: the layout of the new worktree.
        root: the project root.

    Raises:
        UsageError: a path leads out of the project, or a linked directory does not exist.

    """
    for path in (*(layout.sparse or ()), *layout.links):
        parts = PurePosixPath(path).parts
        if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\n" in path or "\0" in path:
            raise UsageError(f"{path!r} does not name a place in the project", "a path relative to its root")
        if parts[0] in {".git", ".ralph"}:
            raise UsageError(f"{path!r} belongs to git or ralph-wrap", "name another directory")
    for path in layout.links:
        directory = root / path
        if not directory.is_dir():
            raise UsageError(
                f"{directory} is not a directory that could be linked", command("mkdir", "-p", directory)
            )
        if not directory.resolve().is_relative_to(root):
            raise UsageError(f"{directory} leads out of the project", "name a directory in it")


def directories(paths: Sequence[str], in_tree: Collection[str]) -> tuple[str, ...]:
    """Return the directories that paths name; a file stands for its directory.

    Arguments:
        paths: the paths as the user typed them.
        in_tree: the paths that are files in the commit to check out.

    """
    found = [PurePosixPath(path) for path in paths]
    found = [path.parent if str(path) in in_tree else path for path in found]
    return tuple(sorted({str(path) for path in found if path.parts}))


def cone(paths: Sequence[str]) -> bytes:
    """Return the patterns of a cone (git-sparse-checkout(1): INTERNALS — CONE PATTERN SET).

    Arguments:
        paths: directories below the top level.

    """
    whole = {PurePosixPath(path) for path in paths}
    whole = {path for path in whole if not whole & {*path.parents}}
    parents = {parent for path in whole for parent in path.parents if parent.parts}
    rows = ["/*", "!/*/"]
    for path in sorted({*whole, *parents}, key=lambda path: path.parts):
        rows.append(f"/{_escaped(path)}/")
        if path in parents:
            rows.append(f"!/{_escaped(path)}/*/")
    return os.fsencode("".join(f"{row}\n" for row in rows))


def _escaped(path: PurePosixPath) -> str:
    return re.sub(r"([\\*?[])", r"\\\1", str(path))


def prepare(git: Git, registration: Path, layout: WorktreeLayout) -> None:
    """Write the files of a registration that git needs for the checkout.

    Raises:
        OSError: a file cannot be written.

    """
    if layout.sparse is not None:
        (registration / _PATTERNS).parent.mkdir(exist_ok=True)
        files.replace(registration / _PATTERNS, cone(layout.sparse), sync=False)
    if layout.links:
        rows = [
            _excluded_by_user(git),
            *(os.fsencode(f"/{_escaped(PurePosixPath(path))}\n") for path in layout.links),
        ]
        files.replace(registration / EXCLUDES, b"".join(rows), sync=False)
        files.replace(registration / LINKS, os.fsencode("\n".join(layout.links)), sync=False)
    if core := core_config(registration):
        for key, value in core:
            run_git(git, "config", "--file", registration / CONFIG, f"core.{key}", value)


def copy_layout(old: Path, new: Path) -> None:
    """Copy the layout in a registration to another one; no symlink is followed.

    Raises:
        OSError: a file is not a plain file, or cannot be copied.

    """
    for name in (_PATTERNS, Path(EXCLUDES), Path(LINKS)):
        with contextlib.suppress(FileNotFoundError):
            content = files.read(old / name, _LARGEST)
            (new / name).parent.mkdir(exist_ok=True)
            files.replace(new / name, content, sync=False)


def _excluded_by_user(git: Git) -> bytes:
    answer = run_git(git, "config", "--path", "--get", "core.excludesFile", accept=(0, 1))
    default = Path(git.env.get("XDG_CONFIG_HOME") or f"{git.env.get('HOME') or '/'}/.config", "git/ignore")
    path = Path(decode(answer.stdout).removesuffix("\n")) if answer.status == 0 else default
    try:
        content = (git.cwd / path).read_bytes()[:_LARGEST]
    except OSError:
        return b""
    return content if content.endswith(b"\n") or not content else content + b"\n"


def is_sparse(registration: Path) -> bool:
    """Return whether ralph-wrap has made a worktree sparse."""
    return (registration / _PATTERNS).is_file()


SPARSE = ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=true")
"""Arguments that switch the patterns on."""


def core_config(registration: Path) -> list[tuple[str, str]]:
    """Return keys below ``core``, and values, that each git command in a worktree needs."""
    sparse = [argument.removeprefix("core.").partition("=")[::2] for argument in SPARSE[1::2]]
    path = registration / EXCLUDES
    linked = [("excludesFile", os.fspath(path))] if path.is_file() else []
    return [*(sparse if is_sparse(registration) else ()), *linked]


def environment_config(registration: Path) -> list[tuple[str, str]]:
    """Return configuration for an environment; git applies it in this worktree alone.

    An agent inherits the environment, and may run git in other directories too (git-config(1): Conditional
    includes).
    """
    path = registration / CONFIG
    pattern = re.sub(r"([\\*?[])", r"\\\1", os.fspath(registration))
    return [(f"includeIf.gitdir:{pattern}.path", os.fspath(path))] if path.is_file() else []


def link(top: Path, root: Path, paths: Sequence[str]) -> None:
    """Link directories of the project into a worktree, or copy them if the file system has no symlinks.

    Arguments:
        top: the top level of the worktree.
        root: the project root.
        paths: paths of the directories, below both.

    Raises:
        IsolationError: the commit has a file or directory at the path, or a symlink above it.
        OSError: a directory can be neither linked nor copied.

    """
    for path in paths:
        target = top / path
        if os.path.lexists(target) or any(parent.is_symlink() for parent in target.parents if parent != top):
            raise IsolationError(f"{path} cannot be linked: the commit has it", "link what git ignores")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Relative: it also leads to the directory if the project is mounted under another path.
            target.symlink_to(os.path.relpath(root / path, target.parent))
        except OSError:
            shutil.copytree(root / path, target, symlinks=True)
