"""Make a repository by writing its files (gitrepository-layout(5)); no git command runs.

A repository that borrows objects has no object of its own at first, so a clone costs a few small files. The
paths to the borrowed objects are relative: they are the same where the project is mounted elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ralph_wrap.errors import IsolationError
from ralph_wrap.system import files

_UNBORN = "refs/heads/ralph-wrap-has-no-branch"


def make_repository(
    git_dir: Path,
    *,
    config: Iterable[tuple[str, str]],
    refs: Mapping[str, str],
    borrows: Path,
    head: str = _UNBORN,
    shallow: bytes = b"",
) -> None:
    """Make a repository without objects.

    Arguments:
        git_dir: the directory of the repository; it does not exist.
        config: keys and values of its configuration.
        refs: full names and object ids.
        borrows: the object directory of another repository, which holds the objects of *refs*.
        head: full name of the branch at HEAD.
        shallow: content of the other repository's file ``shallow``.

    Raises:
        IsolationError: git cannot write the path of the other repository into a file.
        OSError: a file cannot be written.

    """
    for directory in ("objects/info", "objects/pack", "refs/heads", "info"):
        (git_dir / directory).mkdir(parents=True)
    rows = sorted(f"{oid} {ref}\n" for ref, oid in refs.items())
    contents = {
        "objects/info/alternates": alternates(git_dir, borrows),
        "packed-refs": os.fsencode("# pack-refs with: \n" + "".join(rows)),
        "config": os.fsencode("".join(_section(key, value) for key, value in config)),
        "HEAD": os.fsencode(f"ref: {head}\n"),
    }
    if shallow:
        contents["shallow"] = shallow
    for name, content in contents.items():
        files.replace(git_dir / name, content, sync=False)


def alternates(git_dir: Path, borrows: Path) -> bytes:
    """Return the content of ``objects/info/alternates`` in a repository that borrows objects.

    Raises:
        IsolationError: the path cannot be written to this file.

    """
    path = os.path.relpath(borrows, git_dir / "objects")
    if "\n" in path:
        raise IsolationError(f"{borrows} has a newline in its path", "move the project to another path")
    return os.fsencode(f"{path}\n")


def _section(key: str, value: str) -> str:
    """Return a key and a value in the syntax of git-config(1)."""
    section, _, rest = key.partition(".")
    middle, _, name = rest.rpartition(".")
    head = f'[{section} "{_escaped(middle)}"]' if middle else f"[{section}]"
    return f'{head}\n\t{name} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", text).replace("\n", "\\n").replace("\t", "\\t")
