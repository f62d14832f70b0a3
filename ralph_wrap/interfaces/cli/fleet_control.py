"""``ralph-wrap fleet ps``, ``logs``, ``stop``, ``resume`` and ``rm``."""

from __future__ import annotations

import json as json_format
import os
from collections import Counter
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ralph_wrap.errors import NotFoundError, RalphError, UsageError
from ralph_wrap.interfaces.cli.boundary import answer, boundary, print_lines
from ralph_wrap.interfaces.cli.fleet_run import REMOTE, cluster_of, run_on_hosts
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.interfaces.cli.safe_terminal import safe_terminal
from ralph_wrap.interfaces.cli.table import aligned, of_terminal, shown
from ralph_wrap.interfaces.fleet.control import ask_to_stop, forget, withdraw_stop_requests
from ralph_wrap.interfaces.fleet.kubernetes.job import job_manifest
from ralph_wrap.interfaces.fleet.kubernetes.kubectl import Kubectl
from ralph_wrap.interfaces.fleet.listing import IndexRow, JobStatus, job_status, list_indexes, list_runs
from ralph_wrap.interfaces.fleet.output import read_output
from ralph_wrap.interfaces.fleet.refs import is_run_id, spec_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import FleetSpec, read_spec
from ralph_wrap.interfaces.fleet.started import StartedRun, read_started
from ralph_wrap.state.ids import is_wide_agent_id
from ralph_wrap.state.project import Project, find_project, repository_of
from ralph_wrap.system.files import write_all
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.signals import run_in_foreground

log = get_logger()

_COLUMNS = ("INDEX", "ID", "STATE", "ITERATIONS", "COST", "NODE", "ENDED BY", "TITLE")
_ON_MACHINES = "on machines"
_NARROW = (("TITLE", 12), ("NODE", 8))

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run; fleet ps --all lists them.")]


class _Fleet(NamedTuple):
    """What the commands work on."""

    project: Project
    remote: FleetRemote

    def kubectl(self) -> Kubectl:
        """Return kubectl for the cluster that the user has approved."""
        return Kubectl(cluster_of(self.project), self.project.environ)


def _fleet(directory: Path) -> _Fleet:
    project = find_project(directory, os.environ)
    git = project.git._replace(cwd=project.main, git_dir=repository_of(project).common_dir)
    return _Fleet(project, FleetRemote(git, REMOTE))


def ps(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run.")] = None,
    directory: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="List the runs.")] = False,
    json: Json = False,
) -> None:
    """List the runs of the remote origin, or the sessions of one."""
    with boundary("fleet ps", json=json, project=directory):
        if every == (run is not None):
            raise UsageError("either a run or --all must be given", "ralph-wrap fleet ps --all")
        fleet = _fleet(directory)
        if run is None:
            runs = list_runs(fleet.remote)
            if json:
                answer("fleet ps", [row._asdict() for row in runs])
                return
            lines = [f"{row.run}  {row.claimed} claimed" for row in runs]
            print_lines(
                lines, f"{REMOTE} has no runs; to start one: ralph-wrap fleet run --count 3 -a claude"
            )
            return
        status = _status(fleet, _checked(run))
        rows = list_indexes(fleet.remote, run, status)
        if json:
            answer("fleet ps", [row._asdict() for row in rows])
            return
        _show(run, rows, status)


def logs(
    run: Run,
    index: Annotated[int, typer.Argument(metavar="INDEX", help="Its index, from 0.")],
    directory: Directory = Path(),
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the pod that works on it, by kubectl logs.")
    ] = False,
) -> None:
    """Print what the workers of an index have printed; it is on the remote from the end of a worker on."""
    with boundary("fleet", json=False, project=directory):
        fleet = _fleet(directory)
        if follow:
            command = fleet.kubectl().logs_command(_checked(run), index)
            with safe_terminal():
                status = run_in_foreground(command, fleet.project.environ)
            raise SystemExit(status)
        content = read_output(fleet.remote, _checked(run), index)
        with safe_terminal():
            write_all(1, content)


def stop(
    name: Annotated[str, typer.Argument(metavar="RUN|ID", help="A run, or the agent id of one session.")],
    directory: Directory = Path(),
) -> None:
    """Suspend a run until fleet resume, or ask one session to end. All work is saved and pushed."""
    with boundary("fleet", json=False, project=directory):
        fleet = _fleet(directory)
        if is_wide_agent_id(name):
            run = ask_to_stop(fleet.remote, name)
            typer.echo(f"session {name} of run {run} stops within a minute")
            return
        if _on_hosts(fleet, _checked(name)) is not None:
            raise UsageError(
                f"run {name} is on machines", "end its command by Ctrl-C: each session saves its work"
            )
        fleet.kubectl().suspend(name, yes=True)
        typer.echo(f"run {name} is suspended; to go on: ralph-wrap fleet resume {name}")


def resume(run: Run, directory: Directory = Path()) -> None:
    """Let a run go on: sessions that were stopped, too. A Job that is over or gone is created again."""
    with boundary("fleet", json=False, project=directory):
        fleet = _fleet(directory)
        if (started := _on_hosts(fleet, _checked(run))) is not None:
            withdraw_stop_requests(fleet.remote, run)
            raise SystemExit(run_on_hosts(fleet.project, started, _spec(fleet, started)))
        kubectl = fleet.kubectl()
        status = job_status(kubectl.job(run))
        again = withdraw_stop_requests(fleet.remote, run)
        if status.is_over or status.state == "gone":
            manifest = _manifest_again(fleet, run)
            kubectl.delete(run)
            kubectl.create(manifest)
        elif status.state == "suspended":
            kubectl.suspend(run, yes=False)
        typer.echo(f"run {run} goes on" + (f", with {again} sessions that were stopped" if again else ""))


def rm(run: Run, directory: Directory = Path()) -> None:
    """Delete the Job and the refs of a run. The branches of its sessions stay: review, merge or drop them."""
    with boundary("fleet", json=False, project=directory):
        fleet = _fleet(directory)
        if _on_hosts(fleet, _checked(run)) is None:
            fleet.kubectl().delete(run)  # it waits for the pods, which push until then
        count = forget(fleet.remote, run)
        typer.echo(
            f"run {run} is deleted, with {count} refs; its branches: ralph-wrap fetch --remote {REMOTE}"
        )


def _status(fleet: _Fleet, run: str) -> JobStatus:
    """Return the status of a Job; the refs alone serve a user without the cluster."""
    if _on_hosts(fleet, run) is not None:
        return JobStatus(_ON_MACHINES, None)
    try:
        return job_status(fleet.kubectl().job(run))
    except RalphError as error:
        log.warning("fleet.cluster_unknown", f"the state of the Job is unknown: {error.message}", error.hint)
        return JobStatus("unknown", None)


def _manifest_again(fleet: _Fleet, run: str) -> bytes:
    """Return the manifest of a run that this user has started before."""
    started = _started(fleet, run)
    config = cluster_of(fleet.project)
    manifest = job_manifest(config, _spec(fleet, started), started.spec, started.address)
    return json_format.dumps(manifest).encode()


def _started(fleet: _Fleet, run: str) -> StartedRun:
    """Return a run that this user has started.

    Raises:
        NotFoundError: this user has not started it on this machine.

    """
    if (started := read_started(run, fleet.project.environ)) is None:
        raise NotFoundError(
            f"you have not started run {run} on this machine",
            f"on the machine where you started it: ralph-wrap fleet resume {run}",
        )
    return started


def _spec(fleet: _Fleet, started: StartedRun) -> FleetSpec:
    fleet.remote.fetch([spec_ref(started.run)])
    return read_spec(fleet.remote.git, started.spec)[0]


def _on_hosts(fleet: _Fleet, run: str) -> StartedRun | None:
    """Return a run that this user has started on machines; ``None`` for one on Kubernetes."""
    started = read_started(run, fleet.project.environ)
    return started if started is not None and started.hosts else None


def _checked(run: str) -> str:
    if not is_run_id(run):
        raise NotFoundError(f"{run!r} is no run", "to list them: ralph-wrap fleet ps --all")
    return run


def _show(run: str, rows: list[IndexRow], status: JobStatus) -> None:
    counts = Counter(row.state for row in rows)
    known = sum(row.cost_usd or 0.0 for row in rows)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none claimed yet"
    cost = f", ${known:.2f} reported" if known else ""
    progress = status.state if status.state == _ON_MACHINES else f"its Job is {status.state}"
    typer.echo(f"run {run}: {states}{cost}; {progress}")
    cells = [
        (
            *(str(row.number), row.id, row.state, str(row.iterations)),
            "-" if row.cost_usd is None else f"{row.cost_usd:.2f}",
            *map(shown, (row.node, row.ended_by, row.title)),
        )
        for row in rows
    ]
    if rows:
        typer.echo("\n".join(aligned(_COLUMNS, cells, of_terminal(), _NARROW)))
