"""Check what can confine the agent of a session: bubblewrap and Landlock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ralph_wrap.commands.doctor.result import DoctorCheck, fine, noted
from ralph_wrap.session.sandbox import backend, launcher

_LANDLOCK_SINCE = "Linux 5.13 or newer, with landlock in the kernel parameter lsm="


def confinement(environ: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Check whether both kinds of sandbox work here."""
    name, why = "bubblewrap", "--sandbox bwrap hides keys, sockets and processes from the agent"
    with backend.BubblewrapTrial(environ) as trial:
        path, problem = trial.result()
    if problem is None:
        yield fine(name, f"{path} makes sandboxes", why)
    else:
        yield noted(name, problem.message.removeprefix("--sandbox bwrap: "), why, problem.hint)
    name, why = "Landlock", "--sandbox landlock stops writes outside the workspace, also in containers"
    if abi := launcher.landlock_abi():
        signals = "" if abi >= launcher.SCOPES_SINCE else "; it stops no signals to other processes"
        yield fine(name, f"ABI {abi}{signals}", why)
    else:
        yield noted(name, "the kernel has none", why, _LANDLOCK_SINCE)
