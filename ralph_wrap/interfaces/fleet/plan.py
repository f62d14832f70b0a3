"""Plan a run: what each session of it gets, and from which commit."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config import Settings, prompt_file
from ralph_wrap.config.task_file import PLACE, read_tasks, with_task
from ralph_wrap.errors import ConflictError, UsageError
from ralph_wrap.git import decode_lines, resolve_commit, run_git
from ralph_wrap.git.remote import RemoteChange, list_remotes, push_addresses, without_secrets
from ralph_wrap.interfaces.fleet.refs import spec_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import DECIDED, MOST, FleetSpec, FleetTask, dollars, write_spec
from ralph_wrap.state.project import Project

_PARALLEL = 10  # sessions at the same time, if the user gives no number


class RunSize(NamedTuple):
    """How large a run is to be.

    Attributes:
        sessions: their number; ``None`` with a file of tasks.
        tasks: a file of tasks; ``None`` with a number.
        parallel: number of sessions at the same time; ``None`` for the default.
        stagger: seconds between two first starts.
        max_cost: what all sessions may cost, in US dollars; each gets the same share. 0 for no limit.

    """

    sessions: int | None
    tasks: Path | None
    parallel: int | None
    stagger: float
    max_cost: float = 0.0


class PlannedRun(NamedTuple):
    """A run whose spec is stored in the repository of the project."""

    spec: FleetSpec
    commit: str


def plan_run(project: Project, settings: Settings, size: RunSize) -> PlannedRun:
    """Plan a run, and store its spec in the repository of the project.

    Arguments:
        settings: of each session.

    Raises:
        UsageError: an option does not fit a fleet.

    """
    options = dict(settings.given or ())
    if wrong := sorted(name for name in options if name in DECIDED):
        raise UsageError(f"{', '.join(wrong)}: not possible in a fleet", "the worker decides that")
    options.pop("log_format", None)  # it is for the terminal of the user
    if options.pop("prompt_file", None) is not None and settings.prompt_file is not None:
        options["prompt"] = prompt_file.read(settings.prompt_file).decode(errors="surrogateescape")
    base = _base(project, settings, options)
    tasks = _tasks(size, options)
    count = len(tasks) if tasks else size.sessions or 0
    if not 1 <= count <= MOST:
        raise UsageError(f"a run has from 1 to {MOST:,} sessions, not {count:,}", "--count N")
    if limits := [limit for limit in (settings.max_cost, size.max_cost / count) if limit]:
        options["max_cost"] = dollars(min(limits))
    spec = FleetSpec(
        run=f"r{os.urandom(4).hex()}",
        size=count,
        options=options,
        command=settings.command if not settings.agent else (),
        tasks=tasks,
        parallel=min(size.parallel or _PARALLEL, count),
        stagger=size.stagger,
        author_name=_config(project, "user.name"),
        author_email=_config(project, "user.email"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return PlannedRun(spec, write_spec(project.git, spec, base))


def put_on_remote(remote: FleetRemote, planned: PlannedRun) -> None:
    """Push the spec of a run, and with it the base of its sessions.

    Raises:
        ConflictError: the remote has another run by this name.
        UnreachableError: the remote does not answer.

    """
    if not remote.change([RemoteChange(spec_ref(planned.spec.run), None, planned.commit)]):
        raise ConflictError(f"{remote.name} has another run {planned.spec.run}", "start it again")


def address_of(project: Project, remote: str, configured: str) -> str:
    """Return the address of the remote, as the workers reach it.

    Arguments:
        remote: its name here.
        configured: the address for workers; empty for that of the remote here.

    Raises:
        UsageError: there is no such remote, or the address has a password, which would be in manifests.

    """
    if remote not in (names := list_remotes(project.git)):
        known = f"the remotes are: {', '.join(names)}" if names else "git remote add origin URL"
        raise UsageError(f"there is no remote {remote!r}", known)
    address = configured or push_addresses(project.git, remote)[0]
    scheme, _, rest = address.partition("://")
    user = rest.partition("/")[0].rpartition("@")[0]
    if rest and (":" in user or (user and scheme.startswith("http"))):
        raise UsageError(
            f"the address {without_secrets(address)} has a password in it, and manifests are no secret",
            "put it into a secret, and name that: git_credential in .ralph/fleet.yaml",
        )
    is_path = not rest and ":" not in address.partition("/")[0]  # git-fetch(1), GIT URLS
    return os.path.abspath(project.main / address) if is_path else address  # noqa: PTH100 -- of no symlink


def _base(project: Project, settings: Settings, options: dict[str, str]) -> str:
    """Return the commit that the run is based on; of the option *base*, only ``fresh`` travels."""
    if options.get("base") != "fresh":
        options.pop("base", None)
    name = "HEAD" if settings.base in {"head", "fresh"} else settings.base
    if (base := resolve_commit(project.git, name)) is None:
        raise UsageError(f"base {settings.base!r} names no commit", "git log --oneline --all")
    return base


def _tasks(size: RunSize, options: dict[str, str]) -> tuple[FleetTask, ...]:
    if size.tasks is None:
        return ()
    template = options.pop("prompt", PLACE)
    tasks = [task for task in read_tasks(size.tasks) if not task.is_done]
    if not tasks:
        raise UsageError(f"each task of {size.tasks} is done already", "add one: - [ ] title")
    return tuple(FleetTask(task.title, with_task(template, task), task.model) for task in tasks)


def _config(project: Project, key: str) -> str:
    answer = run_git(project.git, "config", "--get", "--", key, accept=(0, 1))
    return next(iter(decode_lines(answer.stdout)), "")
