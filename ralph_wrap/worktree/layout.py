"""What of a repository a worktree holds: a part of its directories, and links to directories beside it.

Git's own ``sparse-checkout`` command writes to the configuration that all worktrees share, and several at
once fail. So the patterns are written where git reads them (git-sparse-checkout(1): INTERNALS), and who
works in the worktree is told by its environment that they count.

A linked directory is a symlink that no ``git add`` may see. ``target/`` in a ``.gitignore`` does not match a
symlink, so the worktree gets an exclude file of its own: what the user excludes, and the links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ralph_wrap.errors import IsolationError, UsageError
from ralph_wrap.git import decode, run_git
from ralph_wrap.system import deferred, files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.model import EXCLUDES, LINKS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ralph_wrap.git import Git

_PATTERNS = Path("info/sparse-checkout")
_CONFIG = "ralph-wrap-config"
_LARGEST = 1 << 20  # bytes of a user's exclude file


class WorktreeLayout(NamedTuple):
    """What a worktree holds.

    Attributes:
        sparse: directories below the top level, of which everything is checked out; ``None`` for all of
            them. Files at the top level, and beside a directory on the way to one of these, always are.
        links: directories below the top level that are links to those of the project.

    """

    sparse: tuple[str, ...] | None = None
    links: tuple[str, ...] = ()


EVERYTHING = WorktreeLayout()


def check_layout(layout: WorktreeLayout, root: Path) -> None:
    """Make sure that nothing of a layout leads out of a project, and that what is linked is there.

    Arguments:
        layout: what was asked for.
        root: the project root.

    Raises:
        UsageError: it does, or is not.

    """
    for path in (*(layout.sparse or ()), *layout.links):
        parts = PurePosixPath(path).parts
        if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\n" in path or "\0" in path:
            raise UsageError(f"{path!r} does not name a place in the project", "a path relative to its root")
        if parts[0] in {".git", ".ralph"}:
            raise UsageError(f"{path!r} belongs to git or ralph-wrap", "name another directory")
    for path in layout.links:
        place = root / path
        if not place.is_dir():
            raise UsageError(f"{place} is not a directory that could be linked", f"mkdir -p {place}")
        if not place.resolve().is_relative_to(root):
            raise UsageError(f"{place} leads out of the project", "name a directory in it")


def directories(paths: Sequence[str], in_tree: Collection[str]) -> tuple[str, ...]:
    """Return the directories that paths stand for: a file stands for the one that it is in.

    Arguments:
        paths: as they were typed.
        in_tree: those of them that are files in the commit that is checked out.

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
    above = {parent for path in whole for parent in path.parents if parent.parts}
    rows = ["/*", "!/*/"]
    for path in sorted({*whole, *above}, key=lambda path: path.parts):
        rows.append(f"/{_escaped(path)}/")
        if path in above:
            rows.append(f"!/{_escaped(path)}/*/")
    return os.fsencode("".join(f"{row}\n" for row in rows))


def _escaped(path: PurePosixPath) -> str:
    return re.sub(r"([\\*?[])", r"\\\1", str(path))


def prepare(git: Git, registration: Path, layout: WorktreeLayout) -> None:
    """Write what a registration needs before the files are checked out.

    Raises:
        OSError: it cannot be written.

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
            run_git(git, "config", "--file", registration / _CONFIG, f"core.{key}", value)


def _excluded_by_user(git: Git) -> bytes:
    asked = run_git(git, "config", "--path", "--get", "core.excludesFile", accept=(0, 1))
    default = Path(git.env.get("XDG_CONFIG_HOME") or f"{git.env.get('HOME') or '/'}/.config", "git/ignore")
    path = Path(decode(asked.stdout).removesuffix("\n")) if asked.status == 0 else default
    try:
        content = (git.cwd / path).read_bytes()[:_LARGEST]
    except OSError:
        return b""
    return content if content.endswith(b"\n") or not content else content + b"\n"


def is_sparse(registration: Path) -> bool:
    """Tell whether we have made a worktree sparse."""
    return (registration / _PATTERNS).is_file()


SPARSE = ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=true")
"""Arguments by which git keeps to the patterns."""


def core_config(registration: Path) -> list[tuple[str, str]]:
    """Return keys below ``core``, and values, that whoever works in a worktree needs."""
    sparse = [argument.removeprefix("core.").partition("=")[::2] for argument in SPARSE[1::2]]
    path = registration / EXCLUDES
    linked = [("excludesFile", os.fspath(path))] if path.is_file() else []
    return [*(sparse if is_sparse(registration) else ()), *linked]


def environment_config(registration: Path) -> list[tuple[str, str]]:
    """Return configuration for an environment, which counts in the worktree and in no other.

    Whoever works there inherits it, and may work elsewhere, too (git-config(1): Conditional includes).
    """
    path = registration / _CONFIG
    pattern = re.sub(r"([\\*?[])", r"\\\1", os.fspath(registration))
    return [(f"includeIf.gitdir:{pattern}.path", os.fspath(path))] if path.is_file() else []


def link(top: Path, root: Path, paths: Sequence[str]) -> None:
    """Link directories of the project into a worktree, or copy them where no links can be made.

    Arguments:
        top: of the worktree.
        root: the project root.
        paths: below both.

    Raises:
        IsolationError: the commit has something in that place, or a symlink above it.
        OSError: neither can be done.

    """
    for path in paths:
        place = top / path
        if os.path.lexists(place) or any(above.is_symlink() for above in place.parents if above != top):
            raise IsolationError(f"{path} cannot be linked: the commit has it", "link what git ignores")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Relative, so that it leads to the same place where the project is mounted elsewhere.
            place.symlink_to(os.path.relpath(root / path, place.parent))
        except OSError:
            deferred.shutil.copytree(root / path, place, symlinks=True)
