"""``ralph-wrap fleet run``."""

from __future__ import annotations

import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ralph_wrap.agents import with_agent
from ralph_wrap.config import Settings, load, trust
from ralph_wrap.config.options import FLEET_MAX_COST
from ralph_wrap.config.parsers import duration
from ralph_wrap.config.task_file import PLACE
from ralph_wrap.errors import RalphError, UntrustedError, UsageError
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm, shown
from ralph_wrap.interfaces.cli.boundary import boundary, needs_extra
from ralph_wrap.interfaces.cli.options import Directory, checked, flags, with_options
from ralph_wrap.interfaces.fleet.hosts import HostFleet, check_hosts, script
from ralph_wrap.interfaces.fleet.index import STOPPED
from ralph_wrap.interfaces.fleet.kubernetes.cluster import FILE, ClusterConfig, read_cluster
from ralph_wrap.interfaces.fleet.kubernetes.job import job_manifest
from ralph_wrap.interfaces.fleet.kubernetes.kubectl import Kubectl
from ralph_wrap.interfaces.fleet.listing import read_indexes
from ralph_wrap.interfaces.fleet.plan import PlannedRun, RunSize, address_of, plan_run, put_on_remote
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import FleetSpec
from ralph_wrap.interfaces.fleet.started import StartedRun, logs_of, write_started
from ralph_wrap.state.project import Project, find_project, repository_of
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.signals import SignalHandlers

log = get_logger()

_DECIDED = ("branch", "remote", "push", "isolation", "merge_on_complete")  # by the worker
REMOTE = "origin"
_STAGGER = 2.0  # seconds between two first starts on machines

_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[--] COMMAND…", help="The agent's command, if --agent is not given."),
]


@partial(with_options, without=_DECIDED, more=(FLEET_MAX_COST,))
def run(
    command: _Command = None,
    *,
    project: Directory = Path(),
    count: Annotated[int | None, typer.Option("--count", metavar="N", help="Number of sessions.")] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="FILE", help="A session for each task of this file.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", "-j", metavar="N", min=1, help="Sessions at the same time.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="USER@MACHINE", help="Run the workers there by ssh, not on Kubernetes; several."
        ),
    ] = None,
    host_grace: Annotated[
        str,
        typer.Option(
            "--host-grace",
            metavar="DURATION",
            parser=checked(duration),
            help="Time of a worker to save and push.",
        ),
    ] = "60s",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the manifest, and start nothing.")
    ] = False,
    **typed: Any,
) -> None:
    """Start a run of many sessions on Kubernetes or on machines, and print its id.

    .ralph/fleet.yaml says where, and with what image. With --host, this command runs until all have
    ended. Each session begins at the commit that you are on.
    """
    with boundary("fleet", json=False, project=project):
        if (count is None) == (tasks is None):
            raise UsageError("either --count or --tasks must be given", "ralph-wrap fleet run --count 3")
        found = find_project(project, os.environ)
        repository_of(found)
        hosts = check_hosts(host or [])
        amount = typed.pop(FLEET_MAX_COST.name)
        max_cost = 0.0 if amount is None else FLEET_MAX_COST.kind.read(amount)
        config = None if hosts else cluster_of(found)
        settings = _settings(found, project, flags(typed), tuple(command or ()), has_tasks=tasks is not None)
        stagger = config.stagger if config else _STAGGER
        size = RunSize(count, tasks, parallel, stagger, max_cost)
        planned = plan_run(found, settings, size)
        if config is not None:
            _start(found, config, planned, dry_run=dry_run)
            return
        address = address_of(found, REMOTE, "")
        started = StartedRun(
            planned.spec.run, planned.commit, address, hosts, math.ceil(duration(host_grace))
        )
        if dry_run:
            typer.echo(script(started, 0))
            return
        put_on_remote(FleetRemote(found.git, REMOTE), planned)
        write_started(started, found.environ)
        status = run_on_hosts(found, started, planned.spec)
    raise typer.Exit(status)


def run_on_hosts(project: Project, started: StartedRun, spec: FleetSpec) -> int:
    """Run the workers of a run on its machines until all have ended; return 0 if all are done."""
    typer.echo(started.run)
    logs = logs_of(started.run, project.environ)
    with SignalHandlers() as signals:
        fleet = HostFleet(started, spec.size, spec.parallel, logs, project.environ, signals.cancel)
        failed = fleet.run()
    if signals.cancel.first is not None:
        log.event("fleet.interrupted", f"to go on: ralph-wrap fleet resume {started.run}")
        return 128 + signals.cancel.first
    if failed:
        numbers = ", ".join(map(str, failed))
        log.warning(
            "fleet.failed", f"these indexes failed: {numbers}", f"ralph-wrap fleet resume {started.run}"
        )
    try:
        stopped = _stopped(project, started.run)
    except RalphError as error:  # all of them may be stopped, and 0 would say that all are done
        log.warning(
            "fleet.unknown",
            f"whether indexes were stopped before they were done is unknown: {error.message}",
            f"ralph-wrap fleet ps {started.run}",
        )
        return 1
    if stopped:
        numbers = ", ".join(map(str, stopped))
        log.warning(
            "fleet.stopped",
            f"these indexes were stopped before they were done: {numbers}",
            f"ralph-wrap fleet ps {started.run}",
        )
    return 1 if failed or stopped else 0


def _stopped(project: Project, run: str) -> list[int]:
    """Return the indexes that a limit or the user has stopped.

    Raises:
        RalphError: the remote does not answer.

    """
    states = read_indexes(FleetRemote(project.git, REMOTE), run)
    return [state.number for state in states if state.state == STOPPED]


def cluster_of(project: Project) -> ClusterConfig:
    """Return what ``.ralph/fleet.yaml`` says, once the user has approved it.

    An agent may have written it, and it names the cluster, the image and the secrets.

    Raises:
        UsageError: it is missing or wrong.
        UntrustedError: the user has not approved it.

    """
    with needs_extra("fleet"):
        config = read_cluster(project.main)
    stated = json.loads(json.dumps(config._asdict()))
    if trust.implied(project.environ) or trust.is_approved(
        project.main, stated, project.environ, trust.FLEET
    ):
        return config
    given = {key: value for key, value in stated.items() if value != config._field_defaults.get(key)}
    rows = [f"ralph-wrap: {FILE} says where fleets of this project run:", *shown(given)]
    if not can_ask():
        raise UntrustedError(
            f"you have not approved {FILE} as it is now",
            Commands.of("type the command on a terminal, which asks you", "in a script: RALPH_TRUST=1"),
        )
    if not confirm(rows, "start fleets with this?", None):
        raise UntrustedError("nothing was started", f"change {FILE} first")
    trust.approve(project.main, stated, project.environ, trust.FLEET)
    log.event("fleet.approved", keys=sorted(given))
    return config


def _settings(
    project: Project,
    directory: Path,
    typed: dict[str, str | None],
    command: tuple[str, ...],
    *,
    has_tasks: bool,
) -> Settings:
    """Return the settings of each session; they are checked here, not on the nodes alone."""
    if has_tasks and typed.get("prompt") is None and typed.get("prompt_file") is None:
        typed["prompt"] = PLACE
    settings = load(directory, project.main, Path.cwd(), typed, project.environ, command)
    return with_agent(settings, "ralph-wrap fleet run")


def _start(project: Project, config: ClusterConfig, planned: PlannedRun, *, dry_run: bool) -> None:
    """Print the manifest of a run, or create it."""
    spec, commit = planned
    address = address_of(project, REMOTE, config.remote)
    manifest = json.dumps(job_manifest(config, spec, commit, address), indent=2)
    if dry_run:
        typer.echo(manifest)
        return
    put_on_remote(FleetRemote(project.git, REMOTE), planned)
    write_started(StartedRun(spec.run, commit, address), project.environ)
    try:
        Kubectl(config, project.environ).create(manifest.encode())
    except RalphError as error:
        hint = Commands.of(error.hint, f"to try again: ralph-wrap fleet resume {spec.run}")
        raise RalphError(error.message, hint) from None
    log.event(
        "fleet.started",
        f"run {spec.run} of {spec.size} sessions, {spec.parallel} at the same time: "
        f"ralph-wrap fleet ps {spec.run}",
    )
    typer.echo(spec.run)
