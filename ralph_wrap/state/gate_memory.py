"""The last run of a session's gate: ``gate.json`` in its directory, which outlives a kill.

A sweep reads it for the report of a killed session, and the next session on the branch gives its agent the
output of a gate that has failed. An agent can write this file, and it says whether work is proven. So it is
signed as ``start.json`` is (see :mod:`ralph_wrap.state.session_start`), and counts only with our signature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.state import session_start
from ralph_wrap.state.project import Project
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields

_KIND = "gate"  # of what is signed here
_FORMAT = DocumentFormat(version=1, indent=1)
GATE = "gate.json"
"""The name of the file in a session's directory."""


class RememberedGate(NamedTuple):
    """The last run of a gate.

    Attributes:
        iteration: the iteration after which it ran.
        runs: how often the gate has run in the session.
        result: one of ``state.report.GATE_RESULTS``.
        command: what was run.
        status: its exit status.
        seconds: how long it ran.
        outcome: how it ended, in words.
        output: the end of its output; empty unless it failed.
        is_unread: no agent has got the output yet.

    """

    iteration: int
    runs: int
    result: str
    command: str
    status: int
    seconds: float
    outcome: str
    output: str = ""
    is_unread: bool = False

    def after(self, iteration: int) -> dict[str, Any]:
        """Return ``verify`` of a report.

        Arguments:
            iteration: the last one of the session; if that is later, it may have changed the work.

        """
        names = ("result", "command", "runs", "iteration", "status", "seconds")
        facts = {name: getattr(self, name) for name in names}
        return facts if iteration == self.iteration else facts | {"result": "not run"}


def write(gate: RememberedGate, directory: Path, project: Project) -> None:
    """Write the last run of the gate.

    Arguments:
        directory: of the session.

    Raises:
        OSError: the file cannot be written.

    """
    signature = session_start.signature(_KIND, gate, directory, project)
    files.replace(
        directory / GATE, _FORMAT.encode(gate._asdict() | {"signature": signature}), sync=False, mode=0o600
    )


def read(directory: Path, project: Project) -> RememberedGate | None:
    """Return the last run of the gate of a session; ``None`` if nothing says it that we have written."""
    try:
        return _FORMAT.read(directory / GATE, lambda loaded: _genuine(loaded, directory, project))
    except (OSError, ValueError):
        return None


def _genuine(loaded: dict[str, Any], directory: Path, project: Project) -> RememberedGate | None:
    gate = convert_fields(loaded, RememberedGate)
    is_ours = session_start.is_signed(_KIND, gate, directory, project, loaded["signature"])
    return gate if is_ours else None
