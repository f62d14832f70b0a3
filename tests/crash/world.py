"""A repository in which sessions die, and the proof that nothing is lost and nothing is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.directory_listing import listing
from tests.support.processes import is_deleting, left
from tests.support.repo import Repo, make_repo
from tests.support.sessions import Result
from tests.support.trees import on_disk
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.fork_server import ForkServer
    from tests.support.trees import Listing

LEAVING = ".leaving"
"""Worktrees on their way out, which may come back."""

_AGENT_LOCK = "ralph-wrap-agent.lock"  # in a registration; it stays as long as the worktree

STRANGERS = (
    ".ralph/worktrees/mine",
    ".ralph/worktrees/20200102T030405Z-cafe",
    ".ralph/run/trash/mine",
    ".ralph/run/trash/20200102T030405Z-cafe",
    ".ralph/run/landing/land-00000000",
)
"""Directories of a user where ralph-wrap has its own."""

WORK = {
    # Every kind of work that is not on a branch, on top of a commit.
    "dirty": """
echo committed > committed; git add committed; git commit -qm work
echo staged > staged; git add staged
echo changed >> file.txt
printf 'raw\\0bytes' > untracked; chmod +x untracked; ln -s untracked link
mkdir -p deep/er; echo x > 'deep/er/a name with\ttab'
git rm -q gone
git mv moved renamed
echo rewritten > both; git add both; echo again > both
""",
    # Commits that only the reflog knows, a merge that is not finished.
    "merge": """
echo one > one; git add one; git commit -qm one
echo two > one; git commit -qam amended --amend
git checkout -q -b side HEAD^; echo other > one; git add one; git commit -qm other
git checkout -q -; git merge -q side || true
echo new > new
""",
}
"""What agents do, by the kind of work that they leave."""


class World(NamedTuple):
    """A repository, an agent, and where its end is to be seen.

    Attributes:
        directory: everything that belongs to it, and nothing else.
        home: by which processes of the test are known.
        program: what runs the commands.

    """

    directory: Path
    home: Path
    program: ForkServer

    @classmethod
    def make(cls, directory: Path, home: Path, program: ForkServer, kind: str) -> World:
        """Make a world in a new directory."""
        directory.mkdir()
        repo = make_repo(directory / "project")
        for name in ("gone", "moved", "both"):
            repo.write(name, f"{name}\n" * 20)
        if kind == "dirty":  # the others have the rule added by the session
            repo.write(".gitignore", ".ralph/worktrees/\n*.log\n")
        repo.commit("base")
        repo.write("mine", "the user's own\n")
        for stranger in STRANGERS:
            repo.write(f"{stranger}/file", f"of the user, in {stranger}\n")
        repo.git("worktree", "add", "-q", "-b", "theirs", directory / "theirs")
        (directory / "theirs" / "untracked").write_text("the user's own, too\n")
        made = cls(directory, home, program)
        (directory / "strangers").write_text(made.strangers())
        # Through a rename: a file that is there is a file that is whole.
        end = f"touch {directory}/almost; mv {directory}/almost {made.done}"
        # Files older than a tick of the clock need no second look by git: each run has the same points.
        made.agent.write_text(f"#!/bin/sh\ncat >/dev/null\n{WORK[kind]}\nsleep 0.05\n{end}\n")
        made.agent.chmod(0o755)
        return made

    @property
    def repo(self) -> Repo:
        """The project."""
        return Repo(self.directory / "project")

    @property
    def agent(self) -> Path:
        """The agent's command."""
        return self.directory / "agent"

    @property
    def done(self) -> Path:
        """Is there once the agent has done all its work."""
        return self.directory / "done"

    @property
    def points(self) -> Path:
        """The points that the latest command has reached."""
        return self.directory / "points"

    @property
    def reached(self) -> list[str]:
        """Their names."""
        return self.points.read_text(errors="replace").splitlines()

    @property
    def states(self) -> list[str]:
        """What a kill at each of them would have left, by a hash; of a command with the fault ``watch``."""
        return self.points.with_suffix(".states").read_text().splitlines()

    def copy(self, directory: Path) -> World:
        """Return the same world in a new directory; of this one, nothing may have run."""
        shutil.copytree(self.directory, directory, symlinks=True)
        there = self._replace(directory=directory)
        there.agent.write_text(
            there.agent.read_text().replace(os.fspath(self.directory), os.fspath(directory))
        )
        return there

    def put_aside(self) -> Path:
        """Keep what is here now for :meth:`bring_back`, and return where."""
        self._await_deletions()
        aside = self.directory.with_name(f"{self.directory.name}-aside")
        shutil.copytree(self.directory, aside, symlinks=True, copy_function=_copy)
        return aside

    def bring_back(self, aside: Path) -> None:
        """Be again what was put aside."""
        self._await_deletions()
        shutil.rmtree(self.directory)
        shutil.copytree(aside, self.directory, symlinks=True, copy_function=_copy)

    def _await_deletions(self) -> None:
        eventually(lambda: not is_deleting(self.home), "the deletions in the background to end")

    def command(
        self, *arguments: str, fault: str = "count", number: int = 0, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command of ralph-wrap that meets a fault at a point."""
        self.points.unlink(missing_ok=True)
        done = self.program.run(
            *arguments,
            cwd=self.repo.path,
            environ={**os.environ, **(env or {})},
            patience=CAP * (9 if fault == "watch" else 3),  # watching takes longer than the session
            fault=(self.points, fault, number),
        )
        return Result(done.status, done.stdout, done.stderr.decode(errors="replace"), None)

    def run(self, fault: str = "count", number: int = 0, env: Mapping[str, str] | None = None) -> Result:
        """Run a session of the agent that meets a fault at a point."""
        # Never in the project itself: work there is not for us to save.
        options = ("--isolation", "require", "-n", "1")
        result = self.command(
            "run", *options, "--", os.fspath(self.agent), fault=fault, number=number, env=env
        )
        if result.status == -signal.SIGKILL and self.agent_started:
            self.await_agent()
        return result

    def await_agent(self) -> None:
        """Wait until the agent of a killed session has done its work."""
        eventually(self.done.exists, "the agent's work")

    def sweep(self, fault: str = "count", number: int = 0, env: Mapping[str, str] | None = None) -> Result:
        """Finish what is left, and meet a fault meanwhile."""
        return self.command("sweep", fault=fault, number=number, env=env)

    def run_killed_and_sweep(self, number: int, at: str) -> bool:
        """Run a session that is killed at a point, and finish it; return whether its agent had started.

        How many points a session has depends on its timing. One that has fewer ends by itself.

        Arguments:
            at: names the point in a failure.

        """
        status = self.run("kill", number).status
        assert status == (-signal.SIGKILL if len(self.reached) >= number else 0), at
        agent_started = self.agent_started
        swept = self.sweep()
        assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
        return agent_started

    @property
    def agent_started(self) -> bool:
        """Whether a process of the agent was about to be started."""
        reached, start = self.reached, f"start {self.agent}"
        started = [position for position, name in enumerate(reached) if name == start]
        return bool(started) and started[0] + 1 < len(reached)

    def strangers(self) -> str:
        """Return all that a user has put among our directories, and the user's own worktree."""
        places = [*STRANGERS, ".git/worktrees/theirs", "../theirs"]
        return repr(
            [(directory, sorted(listing(self.repo.path / directory).items())) for directory in places]
        )

    @property
    def worktrees(self) -> list[Path]:
        """Each worktree, or whatever is in its place."""
        strangers = {self.repo.path / name for name in STRANGERS}
        return sorted({*self.repo.path.glob(".ralph/worktrees/*")} - strangers)

    @property
    def report(self) -> dict[str, Any]:
        """The report of the only session; empty if there is none."""
        for path in self.repo.path.glob(".ralph/run/sessions/*/report.json"):
            loaded: dict[str, Any] = json.loads(path.read_text())
            return loaded
        return {}

    def work(self) -> dict[str, list[str]]:
        """Return all that is kept of the agent's work: trees, but no times and no ids."""
        listed = self.repo.git(
            "for-each-ref", "--format=%(refname) %(objectname) %(parent)", "refs/heads/ralph/", "refs/ralph/"
        )
        rows = [row.split(" ") for row in listed.splitlines()]
        commits = [commit for _, *ids in rows for commit in ids if commit]
        trees = self.repo.git("rev-parse", *(f"{commit}^{{tree}}" for commit in commits)).splitlines()
        tree_of = dict(zip(commits, trees, strict=True))
        return {
            # refs/heads/ralph/<id>-wip, refs/ralph/snapshots/<id>/<n>
            re.sub(r"(?<=/)[0-9a-f]{4}(?=[/-]|$)", "ID", ref): [tree_of[commit] for commit in ids if commit]
            for ref, *ids in rows
        }

    def remains(self, *, wait: bool = True) -> dict[str, object]:
        """Return what must not be there once everything is finished.

        Arguments:
            wait: until what is on its way out is gone.

        """
        state = self.repo.path / ".ralph" / "run"
        trash = state / "trash"
        strangers = {self.repo.path / stranger for stranger in STRANGERS}
        if wait:
            eventually(
                lambda: (
                    not is_deleting(self.home)
                    and all(one.suffix == LEAVING for one in {*trash.glob("*")} - strangers)
                ),
                "the trash to be emptied",
            )
        registrations = self.repo.path / ".git" / "worktrees"
        found: dict[str, object] = {
            "records": sorted(path.name for path in state.glob("agents/*")),
            "registrations": sorted(path.name for path in registrations.glob("*") if path.name != "theirs"),
            "worktrees that may come back": sorted(path.name for path in trash.glob(f"*{LEAVING}")),
            "worktrees": [path.name for path in self.worktrees],
            "locks": sorted(
                str(path) for path in self.repo.path.glob(".git/**/*.lock") if path.name != _AGENT_LOCK
            ),
            "temporary files": [
                path.name
                for path in (
                    *state.rglob(".*.*"),
                    *self.repo.path.glob(".*.*"),
                    *self.repo.path.glob(".git/info/.*"),
                )
            ],
            "empty directories": [path.name for path in state.glob("sessions/*") if not [*path.iterdir()]],
            "strangers": self.strangers()
            if self.strangers() != (self.directory / "strangers").read_text()
            else "",
            "processes": left(self.home),
        }
        return {name: there for name, there in found.items() if there}


def _copy(source: str, target: str) -> None:
    """Copy a file, but have a lock be the same file: a copied one proves nothing."""
    if source.endswith(".lock"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


class Reference(NamedTuple):
    """What a session leaves that nothing happens to.

    Attributes:
        fresh: a world in which nothing has run.
        points: how many points there were, and their names.
        work: on its branches.
        files: in its worktree before that was saved.
        staged: in its index.
        untouched: what the main checkout was.

    """

    fresh: World
    points: list[str]
    work: dict[str, list[str]]
    files: Listing
    staged: str
    untouched: dict[str, str]

    @classmethod
    def make(
        cls,
        directory: Path,
        home: Path,
        program: ForkServer,
        kind: str,
        fault: str,
        prepare: Callable[[World], None] = lambda _: None,
    ) -> Reference:
        """Run a session to its end, and another one up to the end of its agent.

        Arguments:
            directory: for the worlds.
            home: by which processes of the test are known.
            program: what runs the commands.
            kind: of work.
            fault: whose points are listed.
            prepare: called with the fresh world.

        """
        fresh = World.make(directory / "fresh", home, program, kind)
        prepare(fresh)
        ended, kept = fresh.copy(directory / "ended"), fresh.copy(directory / "kept")
        assert ended.run(fault).status == 0
        points = ended.reached
        assert ended.remains() == {}
        assert kept.run(env={"RALPH_KEEP_WORKTREES": "1"}).status == 0
        (worktree,) = kept.worktrees
        return cls(
            fresh,
            points,
            ended.work(),
            on_disk(worktree),
            kept.repo.git("ls-files", "--stage", cwd=worktree),
            fresh.repo.fingerprint(),
        )

    def check(self, world: World, at: str, printed: str) -> None:
        """Fail unless everything is finished, or all of the work is still in a worktree, with a reason.

        Arguments:
            world: in which something has happened, and then a sweep.
            at: where.
            printed: all that the user was shown.

        """
        assert world.repo.fingerprint() == self.untouched, at
        if not world.worktrees:
            remains = world.remains()
            assert remains == {}, f"{at}: {remains}; {printed}"
            assert world.work() == (self.work if world.done.exists() else {}), at
            return
        (worktree,) = world.worktrees
        assert on_disk(worktree) == self.files, at
        assert world.repo.git("ls-files", "--stage", cwd=worktree) == self.staged, at
        reason = world.report.get("kept")
        assert reason, at
        assert reason in printed, f"{at}: {printed}"
        assert {*world.remains()} == {"registrations", "worktrees"}, at
