"""What a run is: the file ``spec.json`` in a commit, whose parent is the base of every session.

A worker runs the commit whose id its engine names. Everybody with access to the remote can write such
commits, so any content is handled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ralph_wrap.config import ROWS
from ralph_wrap.config.parsers import DOLLARS
from ralph_wrap.config.table import TYPED
from ralph_wrap.errors import RalphError
from ralph_wrap.git import Git, commit_tree, read_commit, store_blob
from ralph_wrap.git.objects import make_tree
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.refs import is_run_id
from ralph_wrap.system.document import DocumentFormat, convert_fields

FILE = "spec.json"
"""The name of the file in the commit."""

MOST = 10_000
"""Sessions of a run at most."""

DECIDED = frozenset({"branch", "remote", "push", "job", "project", "isolation", "merge_on_complete"})
"""Options that a session of a fleet cannot have: the worker decides them."""

_FORMAT = DocumentFormat(version=1, largest=16 << 20, indent=1)
_SLOWEST = 3600.0  # seconds between two starts
_LEAST_DOLLARS = 0.000001  # an option has six decimals, and 0 would be no limit


class FleetTask(NamedTuple):
    """What one session of a run works on.

    Attributes:
        title: for people.
        prompt: for the agent.
        model: of the agent; empty for that of the run.

    """

    title: str
    prompt: str
    model: str = ""


class FleetSpec(NamedTuple):
    """A run.

    Attributes:
        run: its id.
        size: number of sessions; ``count`` in the file.
        options: options of ``ralph-wrap run``, as texts by name.
        command: the agent's command; empty if an option names the agent.
        tasks: one task for each session; empty if all sessions have the same prompt.
        parallel: number of sessions at the same time, for the first starts.
        stagger: seconds between two first starts.
        author_name: the author of the commits of the agents.
        author_email: the same.
        created: when, for people.

    """

    run: str
    size: int
    options: Mapping[str, str] = {}
    command: tuple[str, ...] = ()
    tasks: tuple[FleetTask, ...] = ()
    parallel: int = 1
    stagger: float = 0.0
    author_name: str = ""
    author_email: str = ""
    created: str = ""

    @property
    def max_cost(self) -> float:
        """What a session may cost, in all workers that run it, in US dollars; 0 for no limit."""
        return float(DOLLARS.read(self.options.get("max_cost", "0")))

    def options_of(self, index: int, spent: float = 0.0) -> dict[str, str | None]:
        """Return the options of one session.

        Arguments:
            spent: what the session has cost in earlier workers, which comes off its limit.

        """
        options: dict[str, str | None] = dict(self.options)
        if self.tasks:
            task = self.tasks[index]
            options |= {"prompt": task.prompt, "name": task.title}
            options |= {"model": task.model} if task.model else {}
        if self.max_cost:
            options["max_cost"] = dollars(self.max_cost - spent)
        return options

    def encode(self) -> bytes:
        """Return the content of its file."""
        return _FORMAT.encode(
            {"count" if name == "size" else name: value for name, value in self._asdict().items()}
            | {"tasks": [task._asdict() for task in self.tasks]}
        )


def dollars(amount: float) -> str:
    """Return a limit on the cost as the text of an option."""
    return f"{max(amount, _LEAST_DOLLARS):.6f}".rstrip("0").rstrip(".")


def write_spec(git: Git, spec: FleetSpec, base: str) -> str:
    """Store a run as a commit on the base of its sessions, and return the commit's id."""
    tree = make_tree(git, {FILE: store_blob(git, spec.encode())})
    return commit_tree(git, tree, [base], f"ralph-wrap: run {spec.run} of {spec.size} sessions\n")


def read_spec(git: Git, commit: str) -> tuple[FleetSpec, str]:
    """Return the run that a commit describes, and the base of its sessions.

    Raises:
        RalphError: the commit describes no run of this version.

    """
    name = f"{commit}:{FILE}"
    parents = read_commit(git, commit).parents
    content = read_blobs(git, [name]).get(name)
    if content is None or len(parents) != 1:
        raise RalphError(f"commit {commit} describes no run of a fleet")
    try:
        return _FORMAT.decode(content, _checked), parents[0]
    except ValueError as error:
        raise RalphError(f"commit {commit} describes no run that this version can do: {error}") from None


def _checked(fields: dict[str, Any]) -> FleetSpec:
    tasks = tuple(convert_fields(task, FleetTask) for task in fields.pop("tasks", ()))
    spec = convert_fields(fields | {"size": fields["count"]}, FleetSpec)._replace(tasks=tasks)
    if not is_run_id(spec.run):
        raise ValueError("a run id that is none")
    if not 1 <= spec.size <= MOST or (tasks and len(tasks) != spec.size):
        raise ValueError("a wrong number of sessions")
    if spec.parallel < 1:
        raise ValueError("a wrong number of sessions at the same time")
    if not 0 <= spec.stagger <= _SLOWEST:
        raise ValueError("a number out of range")
    DOLLARS.read(spec.options.get("max_cost", "0"))  # raises ValueError
    if wrong := sorted(name for name in spec.options if name in DECIDED or not _is_typed(name)):
        raise ValueError(f"an option that no session of a fleet has: {wrong[0]}")
    return spec


def _is_typed(name: str) -> bool:
    return name in ROWS and TYPED in ROWS[name].sources


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("a text of the wrong type")
    return value
