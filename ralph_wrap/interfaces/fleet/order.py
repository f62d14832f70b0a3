"""What an engine asks of a worker, by the environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import UsageError
from ralph_wrap.git import environment_with_config
from ralph_wrap.git.oid import is_oid
from ralph_wrap.interfaces.fleet.refs import is_run_id

REMOTE, RUN, SPEC = "RALPH_FLEET_REMOTE", "RALPH_FLEET_RUN", "RALPH_FLEET_SPEC"
INDEX, JOB_INDEX = "RALPH_FLEET_INDEX", "JOB_COMPLETION_INDEX"
GRACE, WORKSPACE, CREDENTIAL = "RALPH_FLEET_GRACE", "RALPH_FLEET_WORKSPACE", "RALPH_FLEET_GIT_CREDENTIAL"

WORK_STAYS = 3
"""The exit status of a worker whose workspace has work that the remote has not confirmed."""

_DEFAULT_GRACE = "60"
_DIGITS = 7
_DOCUMENTED = "docs/fleet.md lists the variables"


class WorkOrder(NamedTuple):
    """What one worker is to do.

    Attributes:
        remote: address of the git remote.
        run: id of the run.
        spec: object id of the commit that describes it.
        number: index of the session in the run.
        grace: seconds between SIGTERM and SIGKILL.
        workspace: an empty directory, or one that does not exist.
        credential: a file of git-credential-store(1); ``None`` for none.

    """

    remote: str
    run: str
    spec: str
    number: int
    grace: float
    workspace: Path
    credential: Path | None


def read_order(environ: Mapping[str, str], cwd: Path) -> WorkOrder:
    """Return what the environment asks for.

    Raises:
        UsageError: a variable is missing or wrong.

    """
    credential = environ.get(CREDENTIAL)
    return WorkOrder(
        remote=_given(environ, REMOTE),
        run=_checked(RUN, _given(environ, RUN), is_run_id, "is no run id"),
        spec=_checked(SPEC, _given(environ, SPEC), is_oid, "is no object id"),
        number=int(
            _checked(INDEX, environ.get(INDEX) or _given(environ, JOB_INDEX), _is_number, "is no number")
        ),
        grace=float(
            _checked(GRACE, environ.get(GRACE) or _DEFAULT_GRACE, _is_number, "is no number of seconds")
        ),
        workspace=cwd / environ.get(WORKSPACE, ""),
        credential=cwd / credential if credential else None,
    )


def with_credential(environ: Mapping[str, str], credential: Path | None) -> dict[str, str]:
    """Return an environment in which git also asks the credential file; other helpers are asked first.

    The store helper would write a credential that works back to its file, which may be read-only. So it
    answers only ``get``.
    """
    if credential is None:
        return dict(environ)
    store = f"git credential-store --file {shlex.quote(str(credential))}"
    return environment_with_config(
        environ, "credential.helper", f'!f() {{ test "$1" = get && {store} get; }}; f'
    )


def _given(environ: Mapping[str, str], name: str) -> str:
    if text := environ.get(name):
        return text
    raise UsageError(f"{name} is not set", _DOCUMENTED)


def _checked(name: str, text: str, is_right: Callable[[str], bool], problem: str) -> str:
    if not is_right(text):
        raise UsageError(f"{name} {problem}: {text!r}", _DOCUMENTED)
    return text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
