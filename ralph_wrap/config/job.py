"""A job: what a session is to do, as one JSON document of another program."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ralph_wrap.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 16 << 20  # bytes
_SHAPE = '{"prompt", "isolation", "worktree": {"base_ref", "sparse_paths", "symlink_directories"}}'
_ISOLATION = {"worktree": "prefer", "none": "off"}


def read(path: Path) -> dict[str, Any]:
    """Return what a job says, under the names that options have.

    Arguments:
        path: the file; ``-`` is standard input.

    Raises:
        UsageError: it cannot be read, or a key of it is wrong; the message names the key.

    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        content = sys.stdin.buffer.read(_LARGEST) if str(path) == "-" else path.read_bytes()
        job = json.loads(content)
    except OSError as error:
        raise UsageError(
            f"job {name} cannot be read: {error.strerror}", "name a file that is there"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"job {name} is not valid JSON: {error}", f"the shape is {_SHAPE}") from None
    where = f"job {name}: "
    _check_keys(where, job, {"prompt", "isolation", "worktree"})
    worktree = job.get("worktree", {})
    _check_keys(f"{where}worktree.", worktree, {"base_ref", "sparse_paths", "symlink_directories"})
    values: dict[str, Any] = {"prompt": _text(f"{where}prompt", job.get("prompt"))}
    if "isolation" in job:
        isolation = _text(f"{where}isolation", job["isolation"])
        if isolation not in _ISOLATION:
            raise UsageError(f"{where}isolation: {isolation!r} is none of worktree, none", _SHAPE)
        values["isolation"] = _ISOLATION[isolation]
    if "base_ref" in worktree:
        values["base"] = _text(f"{where}worktree.base_ref", worktree["base_ref"])
    for key, option in {"sparse_paths": "sparse", "symlink_directories": "link"}.items():
        if key in worktree:
            values[option] = "\n".join(_texts(f"{where}worktree.{key}", worktree[key]))
    return values


def _check_keys(where: str, given: Any, known: set[str]) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{where.rstrip('. :')}: an object is expected", f"the shape is {_SHAPE}")
    if unknown := sorted(given.keys() - known):
        raise UsageError(f"{where}{unknown[0]}: unknown key", f"known: {', '.join(sorted(known))}")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: a text is expected", f"the shape is {_SHAPE}")
    return value


def _texts(where: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: a list of texts is expected", f"the shape is {_SHAPE}")
    for number, text in enumerate(value):
        if "\n" in _text(f"{where}[{number}]", text):
            raise UsageError(f"{where}[{number}]: a path of one line is expected", "")
    return value
