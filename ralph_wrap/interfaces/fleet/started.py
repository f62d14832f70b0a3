"""The runs that this user has started: a file for each, outside of every project.

The remote has the spec of a run, too. But each user with access to the remote can replace it, and could so
choose what a Job runs. A command that starts something again relies on this file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.git.oid import is_oid
from ralph_wrap.interfaces.fleet.refs import is_run_id
from ralph_wrap.system import files, privileges
from ralph_wrap.system.document import DocumentFormat, convert_fields

_FORMAT = DocumentFormat(version=1, indent=1)


class StartedRun(NamedTuple):
    """A run that this user started.

    Attributes:
        run: its id.
        spec: object id of the commit that describes it.
        address: of the remote, as its workers reach it.
        hosts: the machines of its workers; empty on Kubernetes.
        grace: seconds between the end of a connection and SIGKILL, on machines.

    """

    run: str
    spec: str
    address: str
    hosts: tuple[str, ...] = ()
    grace: int = 60


def write_started(started: StartedRun, environ: Mapping[str, str]) -> None:
    """Write down a run.

    Raises:
        OSError: the file cannot be written.

    """
    path = _path(started.run, environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.replace(path, _FORMAT.encode(started._asdict()), mode=0o600)


def read_started(run: str, environ: Mapping[str, str]) -> StartedRun | None:
    """Return a run; ``None`` if this user did not start it on this machine."""
    try:
        return _FORMAT.read(_path(run, environ), _checked)
    except (OSError, ValueError):
        return None


def logs_of(run: str, environ: Mapping[str, str]) -> Path:
    """Return the directory for what the workers of a run on machines print; it is made if it is missing.

    Raises:
        OSError: it cannot be made.

    """
    directory = privileges.state_home(environ) / "fleet" / run
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _path(run: str, environ: Mapping[str, str]) -> Path:
    return privileges.state_home(environ) / "fleet" / f"{run}.json"


def _checked(fields: dict[str, Any]) -> StartedRun:
    started = convert_fields(fields, StartedRun)
    if not is_run_id(started.run) or not is_oid(started.spec):
        raise ValueError("a run that is none")
    return started
