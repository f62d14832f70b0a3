"""``ralph-wrap fleet``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import typer

from ralph_wrap.commands.fetch import take_over
from ralph_wrap.commands.resume import resumable
from ralph_wrap.commands.sweep import sweep
from ralph_wrap.config import Isolation, Settings, of_project
from ralph_wrap.config.authority import IMPLIES
from ralph_wrap.errors import ConflictError, RalphError, UnreachableError, explained
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.cli.boundary import boundary, print_error
from ralph_wrap.interfaces.cli.fleet_control import logs, ps, resume, rm, stop
from ralph_wrap.interfaces.cli.fleet_run import REMOTE, run
from ralph_wrap.interfaces.cli.resume import continued_settings
from ralph_wrap.interfaces.cli.start import start
from ralph_wrap.interfaces.fleet.child import NO_ANSWER
from ralph_wrap.interfaces.fleet.index import is_done, lacks_work
from ralph_wrap.interfaces.fleet.order import read_order, with_credential
from ralph_wrap.interfaces.fleet.worker import Attempt, Worker
from ralph_wrap.state import remote_claim
from ralph_wrap.state.project import Project, find_project, objects_of
from ralph_wrap.system.signals import SignalHandlers

fleet = typer.Typer(
    help="Run many sessions at once, on Kubernetes or on other machines.", no_args_is_help=True
)

fleet.command(context_settings={"allow_interspersed_args": False})(run)
fleet.command()(ps)
fleet.command()(logs)
fleet.command()(stop)
fleet.command()(resume)
fleet.command()(rm)

_FAILED = 1
_NO_LIMIT = 30 * 86400.0  # seconds


@fleet.command()
def work() -> None:
    """Run one session of a run, as an engine starts it; the environment says which.

    docs/fleet.md lists the variables and the exit statuses.
    """
    try:
        order = read_order(os.environ, Path.cwd())
        environ = with_credential(os.environ, order.credential) | {IMPLIES: "1"}
        with SignalHandlers() as signals:
            status = Worker(order, environ, signals, lambda attempt: _run(attempt, environ)).run()
    except (OSError, RalphError) as error:
        print_error(explained(error) if isinstance(error, OSError) else error)
        status = _FAILED
    raise typer.Exit(status)


def _run(attempt: Attempt, environ: dict[str, str]) -> int:
    """Run the session of an attempt in this process, and return its exit status."""
    os.environ.clear()
    os.environ.update(environ)
    options, change = _new(attempt) if not attempt.claim else _resumed(attempt, environ)
    with SignalHandlers() as signals:
        return start(signals, attempt.project, {**options, "remote": REMOTE}, attempt.command, change=change)


def _new(attempt: Attempt) -> tuple[dict[str, str | None], Callable[[Settings], Settings]]:
    """Return the options of a session that begins, and what else its settings need."""

    def change(settings: Settings) -> Settings:
        return settings._replace(
            agent_id=attempt.agent_id,
            isolation=Isolation.REQUIRE,
            patience=_NO_LIMIT,
            patience_at_term=attempt.grace,
        )

    return dict(attempt.options), change


def _resumed(
    attempt: Attempt, environ: dict[str, str]
) -> tuple[dict[str, str | None], Callable[[Settings], Settings]]:
    """Take over the session of an attempt, and return its options, and what else its settings need."""
    with boundary("fleet", json=False):
        project = find_project(attempt.project, environ)
        sweep(project)
        claim = attempt.claim
        if not attempt.is_here:
            try:
                _, claim = take_over(project, REMOTE, attempt.agent_id, at_once=False)
            except UnreachableError:
                raise SystemExit(NO_ANSWER) from None  # the worker says so, and tries again
            _require_rest(project, attempt, claim)
        main = of_project(project.main, environ, "main").main
        session = resumable(project, attempt.agent_id, main, again=True, remote=REMOTE, default=attempt.base)
    options, change = _new(attempt)
    if session.base is not None and not (options.get("base") == "fresh" and session.has_branch):
        options["base"] = session.base
    return options, lambda settings: continued_settings(change(settings), session, "")._replace(
        takes_over=claim, agent_id=""
    )


def _require_rest(project: Project, attempt: Attempt, claim: str) -> None:
    """Check that the session has not ended while its claim was watched: it may be done, or push its work yet.

    Arguments:
        claim: object id.

    Raises:
        ConflictError: it has.

    """
    with objects_of(project) as objects:
        found = remote_claim.decode(read_blobs(objects, [claim])[claim], attempt.agent_id)
    if claim != attempt.claim and (is_done(found) or lacks_work(found)):
        raise ConflictError(f"session {found.session} has ended", "this worker looks again at its index")
