"""The results of the project's ``check`` for branches, so that commands can show them without a new run.

The file ``.ralph/run/checks.json`` maps the tip of each checked branch to its result. It is only for display:
``merge`` never relies on it. If it cannot be read, it stays as it is, and ``review`` says so.

An agent can write this file, too. So each result has a signature of the user who ran the check, with the key
of ``state.session_start``. A result without it is not shown: nothing tells it from one that an agent wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.state.project import RUN, Project
from ralph_wrap.state.session_start import is_signed, signature
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.text import command

_KIND = "check"  # of what is signed here
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


def results(project: Project) -> dict[str, CheckResult]:
    """Return the newest result of each tip that this user has checked, by object id.

    Raises:
        RalphError: the file cannot be read.

    """
    return {
        tip: check
        for tip, entry in _entries(project).items()
        if (check := _checked(entry))
        and is_signed(_KIND, (tip, *check), project.root / RUN, project, entry.get("signature"))
    }


def _entries(project: Project) -> dict[str, dict[str, Any]]:
    path = project.root / RUN / _FILE
    try:
        return _FORMAT.read(path, lambda loaded: dict(loaded["checks"].items()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RalphError(
            f"{path} cannot be read: {error}",
            f"to begin a new one: {command('mv', path, f'{path}.unreadable')}",
        ) from None


def _checked(entry: Mapping[str, Any]) -> CheckResult | None:
    try:
        return convert_fields(entry, CheckResult)
    except (TypeError, ValueError):
        return None


def keep(project: Project, tip: str, check: CheckResult) -> None:
    """Record the result of a check; a lock allows one writer at a time.

    Arguments:
        tip: commit of the branch.
        check: the result.

    Raises:
        RalphError: the file cannot be read, and stays as it is.
        OSError: it cannot be written.

    """
    run = project.root / RUN
    known = _entries(project)  # with those of other users, whose signatures we cannot check
    known.pop(tip, None)
    known[tip] = check._asdict() | {"signature": signature(_KIND, (tip, *check), run, project)}
    newest = dict(list(known.items())[-_KEPT:])
    files.replace(run / _FILE, _FORMAT.encode({"checks": newest}), sync=False)
