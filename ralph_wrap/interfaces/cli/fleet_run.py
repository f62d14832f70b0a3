"""``ralph-wrap fleet run``."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.interfaces.cli.boundary import boundary
from ralph_wrap.interfaces.cli.installation import needs_extra
from ralph_wrap.interfaces.cli.options import Directory, flags, with_options
from ralph_wrap.system.log import Commands, on_stderr

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.fleet.cluster import ClusterConfig
    from ralph_wrap.fleet.plan import PlannedRun
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log

_DECIDED = ("branch", "remote", "push", "isolation", "merge_on_complete")  # by the worker
REMOTE = "origin"

_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[--] COMMAND…", help="The agent's command, if --agent is not given."),
]


@partial(with_options, without=_DECIDED)
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the manifest, and start nothing.")
    ] = False,
    **typed: Any,
) -> None:
    """Start a run of many sessions on Kubernetes, and print its id.

    .ralph/fleet.yaml says where, and with what image. Each session begins at the commit that you are on.
    """
    from ralph_wrap.fleet.plan import RunSize, plan_run  # noqa: PLC0415 -- not for --help
    from ralph_wrap.state.project import find_project, repository_of  # noqa: PLC0415

    log = on_stderr(os.environ)
    with boundary("fleet", json=False, project=project, log=log):
        if (count is None) == (tasks is None):
            raise UsageError("either --count or --tasks must be given", "ralph-wrap fleet run --count 3")
        found = find_project(project, os.environ)
        repository_of(found)
        config = cluster_of(found, log)
        settings = _settings(found, project, flags(typed), tuple(command or ()), has_tasks=tasks is not None)
        size = RunSize(count, tasks, parallel, config.stagger, 0.0)
        planned = plan_run(found, settings, size)
        _start(found, config, planned, log, dry_run=dry_run)


def cluster_of(project: Project, log: Log) -> ClusterConfig:
    """Return what ``.ralph/fleet.yaml`` says, once the user has approved it.

    An agent may have written it, and it names the cluster, the image and the secrets.

    Raises:
        UsageError: it is missing or wrong.
        UntrustedError: the user has not approved it.

    """
    with needs_extra("fleet"):
        from ralph_wrap.fleet.cluster import FILE, read_cluster  # noqa: PLC0415 -- it may not be installed
    from ralph_wrap.config import trust  # noqa: PLC0415 -- not for --help
    from ralph_wrap.errors import UntrustedError  # noqa: PLC0415
    from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm, shown  # noqa: PLC0415

    config = read_cluster(project.root)
    stated = json.loads(json.dumps(config._asdict()))
    if trust.implied(project.environ) or trust.is_approved(
        project.root, stated, project.environ, trust.FLEET
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
    trust.approve(project.root, stated, project.environ, trust.FLEET)
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
    from ralph_wrap import config  # noqa: PLC0415 -- not for --help
    from ralph_wrap.agents import with_agent  # noqa: PLC0415
    from ralph_wrap.config.task_file import PLACE  # noqa: PLC0415

    if has_tasks and typed.get("prompt") is None and typed.get("prompt_file") is None:
        typed["prompt"] = PLACE
    settings = config.load(directory, project.root, Path.cwd(), typed, project.environ, command)
    return with_agent(settings)


def _start(project: Project, config: ClusterConfig, planned: PlannedRun, log: Log, *, dry_run: bool) -> None:
    """Print the manifest of a run, or create it."""
    from ralph_wrap.fleet.job import job_manifest  # noqa: PLC0415 -- not for --help
    from ralph_wrap.fleet.kubectl import Kubectl  # noqa: PLC0415
    from ralph_wrap.fleet.plan import address_of, put_on_remote  # noqa: PLC0415
    from ralph_wrap.fleet.remote import FleetRemote  # noqa: PLC0415
    from ralph_wrap.fleet.started import StartedRun, write_started  # noqa: PLC0415

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
