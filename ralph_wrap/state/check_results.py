"""The results of the project's ``check`` for branches, so that commands can show them without a new run.

The file ``.ralph/run/checks.json`` maps the tip of each checked branch to its result. It is only for display:
``merge`` never relies on it. Unreadable content is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE = "checks.json"
_KEPT = 1000  # number of the newest results to keep
_FORMAT = DocumentFormat(version=1, indent=1)


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
        return _FORMAT.read(run / _FILE, _by_tip)
    except (OSError, ValueError):
        return {}


def _by_tip(loaded: Mapping[str, Any]) -> dict[str, CheckResult]:
    return {tip: check for tip, entry in loaded["checks"].items() if (check := _checked(entry))}


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
    content = _FORMAT.encode({"checks": {oid: result._asdict() for oid, result in newest.items()}})
    files.replace(run / _FILE, content, sync=False)
