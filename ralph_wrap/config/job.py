"""A job: another program describes a session in one JSON document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ralph_wrap.errors import UsageError
from ralph_wrap.system.document import from_json

_LARGEST = 16 << 20  # bytes
_SHAPE = '{"prompt", "isolation", "worktree": {"base_ref", "sparse_paths", "symlink_directories"}}'
_ISOLATION = {"worktree": "prefer", "none": "off"}


def read_job(path: Path) -> dict[str, Any]:
    """Return the settings of a job, under the names of the options.

    Arguments:
        path: the file; ``-`` is standard input.

    Raises:
        UsageError: the job cannot be read, or a key is wrong; the message names the key.

    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        content = sys.stdin.buffer.read(_LARGEST) if str(path) == "-" else path.read_bytes()
        job = from_json(content)
    except OSError as error:
        raise UsageError(f"job {name} cannot be read: {error.strerror}", "name a file that exists") from None
    except ValueError as error:
        raise UsageError(f"job {name} is not valid JSON: {error}", f"the shape is {_SHAPE}") from None
    prefix = f"job {name}: "
    _check_keys(prefix, job, {"prompt", "isolation", "worktree"})
    worktree = job.get("worktree", {})
    _check_keys(f"{prefix}worktree.", worktree, {"base_ref", "sparse_paths", "symlink_directories"})
    values: dict[str, Any] = {"prompt": _text(f"{prefix}prompt", job.get("prompt"))}
    if "isolation" in job:
        isolation = _text(f"{prefix}isolation", job["isolation"])
        if isolation not in _ISOLATION:
            raise UsageError(f"{prefix}isolation: {isolation!r} is none of worktree, none", _SHAPE)
        values["isolation"] = _ISOLATION[isolation]
    if "base_ref" in worktree:
        values["base"] = _text(f"{prefix}worktree.base_ref", worktree["base_ref"])
    for key, option in {"sparse_paths": "sparse", "symlink_directories": "link"}.items():
        if key in worktree:
            values[option] = "\n".join(_texts(f"{prefix}worktree.{key}", worktree[key]))
    return values


def _check_keys(prefix: str, given: Any, known: set[str]) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{prefix.rstrip('. :')}: an object is expected", f"the shape is {_SHAPE}")
    if unknown := sorted(given.keys() - known):
        raise UsageError(f"{prefix}{unknown[0]}: unknown key", f"known: {', '.join(sorted(known))}")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key}: a text is expected", f"the shape is {_SHAPE}")
    return value


def _texts(key: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise UsageError(f"{key}: a list of texts is expected", f"the shape is {_SHAPE}")
    for number, text in enumerate(value):
        if "\n" in _text(f"{key}[{number}]", text):
            raise UsageError(f"{key}[{number}]: a path of one line is expected", "")
    return value
