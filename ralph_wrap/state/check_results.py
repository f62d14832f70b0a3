"""The results of the project's ``check`` for branches, so that commands can show them without a new run.

The file ``.ralph/run/checks.json`` maps the tip of each checked branch to its result. It is only for display:
``merge`` never relies on it. Unreadable content is ignored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
"""Version of the file format."""

_FILE = "checks.json"
_KEPT = 1000  # number of the newest results to keep
_LARGEST = 1 << 20  # maximum size of the file in bytes


class CheckResult(NamedTuple):
    """The result of the check for a branch.

    Attributes:
        status: exit status; 0 is a pass.
        target: short name of the branch that it was merged with.
        onto: commit of the target branch.
        ended: UTC, ISO 8601.
        command: hash of the command's text.

    """

    status: int
    target: str
    onto: str
    ended: str
    command: str

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.status == 0


def results(run: Path) -> dict[str, CheckResult]:
    """Return the newest result of each tip, by object id.

    Arguments:
        run: ``.ralph/run`` of the project.

    """
    try:
        loaded = json.loads(files.read(run / _FILE, _LARGEST))
        if loaded["version"] != VERSION:
            return {}
        return {tip: check for tip, entry in loaded["checks"].items() if (check := _checked(entry))}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _checked(entry: Mapping[str, Any]) -> CheckResult | None:
    try:
        check = CheckResult(**{name: entry[name] for name in CheckResult._fields})
    except (TypeError, KeyError):
        return None
    words = (check.target, check.onto, check.ended, check.command)
    return check if type(check.status) is int and all(isinstance(word, str) for word in words) else None


def keep(run: Path, tip: str, check: CheckResult) -> None:
    """Record the result of a check; a lock allows one writer at a time.

    Arguments:
        run: ``.ralph/run`` of the project.
        tip: commit of the branch.
        check: the result.

    Raises:
        OSError: the file cannot be written.

    """
    known = results(run)
    known.pop(tip, None)
    known[tip] = check
    newest = dict(list(known.items())[-_KEPT:])
    document = {"version": VERSION, "checks": {oid: result._asdict() for oid, result in newest.items()}}
    files.replace(run / _FILE, json.dumps(document, indent=1).encode() + b"\n", sync=False)
