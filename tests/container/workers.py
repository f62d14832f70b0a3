"""Dirty sessions in a container, and the proof that nothing of them is lost and nothing of them is left."""

import fcntl
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.container.box import Box
from tests.support.repo import Repo
from tests.support.trees import Listing, in_git, on_disk

EIGHT = 8

# Commits a file, changes a tracked one, leaves an untracked one, and works on until SIGTERM.
WORKING = """
echo one of $RALPH_AGENT_ID >one.txt && git add one.txt && git commit --quiet --message=one
echo changed by $RALPH_AGENT_ID >>file.txt
echo draft of $RALPH_AGENT_ID >draft.new && mv draft.new draft.txt
exec sleep 600
"""
SESSION = ("ralph-wrap", "run", "--max-iterations=1", "--", "/bin/sh", "-c", WORKING)

_PROCESS = re.compile(
    r"^Name:\t(.*)\n(?:.+\n)*?State:\t(.).*\n(?:.+\n)*?Pid:\t(.+)\nPPid:\t(.+)$", re.MULTILINE
)

ALIVE, DEAD = "alive", "dead"
"""States of a session that has not ended; the others are what the report says of its end."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The sessions of a project, whose agents have all done their work.

    Attributes:
        box: a container on the project, which may be gone.
        ids: of their agents, in order.

    """

    box: Box
    ids: list[str]

    @classmethod
    def start(cls, box: Box) -> "Workers":
        """Start eight sessions by `docker exec`."""
        for _ in range(EIGHT):
            box.start(*SESSION)
        return cls.find(box, EIGHT)

    @classmethod
    def find(cls, box: Box, count: int) -> "Workers":
        """Wait until the agents of all sessions have done their work."""
        drafts = ".ralph/worktrees/*/draft.txt"
        box.eventually(lambda: len([*box.project.glob(drafts)]) == count, f"{count} drafts")
        found = cls(box, [record.stem for record in records(Repo(box.project))])
        found.check(*[ALIVE] * count)
        return found

    @property
    def repo(self) -> Repo:
        """The project."""
        return Repo(self.box.project)

    @property
    def pids(self) -> list[int]:
        """The processes of those sessions that have not ended, as their container counts them."""
        return [json.loads(record.read_text())["pid"] for record in records(self.repo)]

    def are_locked(self) -> list[bool]:
        """Tell of each session that has not ended whether it lives."""
        return [_is_locked(record) for record in records(self.repo)]

    def check(self, *states: str) -> None:
        """Fail unless every byte is where it belongs, and nowhere else.

        Arguments:
            states: of the sessions, in order. The work of one that has not ended is in its worktree.

        """
        state = dict(zip(self.ids, states, strict=True))
        open_ones = [agent for agent in self.ids if state[agent] in {ALIVE, DEAD}]
        ended = [agent for agent in self.ids if agent not in open_ones]
        ended_by = {report["id"]: report["ended_by"] for report in self.box.reports()}
        assert ended_by == {agent: state[agent] for agent in ended}
        saved = {f"ralph/{agent}-wip": self._written(agent) for agent in ended}
        branches = {f"ralph/{agent}": self._committed(agent) for agent in self.ids} | saved
        assert self.repo.branches() == ["main", *sorted(branches)]
        assert {branch: in_git(self.repo, branch) for branch in branches} == branches
        worktrees = {path.name[-4:]: path for path in self.repo.path.glob(".ralph/worktrees/*")}
        found = {agent: on_disk(path) for agent, path in worktrees.items()}
        assert found == {agent: self._written(agent) for agent in open_ones}
        assert sorted(path[-4:] for path in self.repo.worktrees()) == open_ones
        assert [record.stem for record in records(self.repo)] == open_ones
        assert self.are_locked() == [state[agent] == ALIVE for agent in open_ones]

    def _committed(self, agent: str) -> Listing:
        return in_git(self.repo, "main") | {b"one.txt": _file(f"one of {agent}")}

    def _written(self, agent: str) -> Listing:
        changed = {b"file.txt": _file(f"one\nchanged by {agent}"), b"draft.txt": _file(f"draft of {agent}")}
        return self._committed(agent) | changed


def _file(content: str) -> tuple[str, bytes]:
    return ("100644", f"{content}\n".encode())


def records(repo: Repo) -> list[Path]:
    """Return the records of sessions that have not ended."""
    return sorted(repo.path.glob(".ralph/run/agents/*.json"))


def _is_locked(record: Path) -> bool:
    with record.with_suffix(".lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def processes(box: Box) -> list[str]:
    """Return name and state (`proc(5)`) of all processes but PID 1, init, its sweep, and the reader."""
    status = box.run("sh", "-c", "exec cat /proc/[0-9]*/status").stdout
    return sorted(
        f"{name} {state}"
        for name, state, pid, parent in _PROCESS.findall(status)
        if pid != "1" and (name, parent) not in {("ralph-wrap", "1"), ("cat", "0")}
    )


def zombies(box: Box) -> int:
    """Return how many processes of a container have ended and were not reaped."""
    return len([shown for shown in processes(box) if shown.endswith(" Z")])


def left(box: Box) -> dict[str, list[str]]:
    """Return what must not be there, in a container and its project, once every session is finished."""
    run, git = box.project / ".ralph/run", box.project / ".git"
    places = {
        "records and locks": run.glob("agents/*"),
        "on their way out": run.glob("trash/*"),
        "temporary files": (*run.glob("*/.*.*"), *run.glob("sessions/*/.*.*")),
        "worktrees": box.project.glob(".ralph/worktrees/*"),
        "registrations": git.glob("worktrees/*"),
        "locks of git": git.glob("**/*.lock"),
    }
    found = {name: [path.name for path in paths] for name, paths in places.items()}
    own = re.sub(r"\D", "", box.run("readlink", "/proc/self/ns/pid").stdout)
    found["locks of other containers"] = [
        lock.name for lock in run.glob("containers/*") if lock.name != f"{own}.lock"
    ]
    found["processes"] = processes(box)
    return {name: there for name, there in found.items() if there}


def assert_nothing_left(box: Box) -> None:
    """Wait until nothing is left of any session; the deletion of a worktree may go on for a moment."""
    try:
        box.eventually(lambda: not left(box), "nothing to be left")
    except AssertionError as error:
        error.add_note(str(left(box)))
        raise
