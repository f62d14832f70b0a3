"""A storm of ``git gc`` beside sessions, and what of the agents' lines is left after it.

Each agent writes files of one line each. It notes a line outside the repository after the file was closed.
Some agents commit, some only stage, some do neither. Meanwhile the user's git collects garbage all the time,
in each way that deletes objects, and sessions are ended, killed and swept.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

COLLECTIONS: tuple[tuple[str, ...], ...] = (
    ("gc", "--quiet", "--prune=now"),
    ("gc", "--quiet", "--prune=now"),
    ("gc", "--quiet", "--auto"),
    ("maintenance", "run", "--quiet"),
    ("maintenance", "run", "--quiet", "--task=loose-objects", "--task=incremental-repack"),
    ("repack", "-q", "-adk"),
    ("repack", "-q", "-ad"),
    ("prune",),
    ("prune", "--expire=now"),
    ("pack-refs", "--all"),
    ("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "--quiet", "--prune=now"),
)
"""What a user's git does, one after another."""

AGENT = """\
#!/bin/sh
# The kind of this agent follows from its session: it commits, it stages, or it leaves all to the session.
case $RALPH_SESSION_ID in *[0-4]) kind=commit ;; *[5-9]) kind=stage ;; *) kind=leave ;; esac
n=0
while [ $n -lt 12 ]; do
    n=$((n + 1)); line="$RALPH_SESSION_ID $kind $RALPH_ITERATION $n"
    mkdir -p "work/$n"
    echo "$line" > "work/$n/$RALPH_SESSION_ID-$RALPH_ITERATION" || exit 1
    echo "$line" >> {journal}/$RALPH_SESSION_ID   # from here on it must not be lost
    case $kind in
    commit) [ $((n % 3)) -ne 0 ] || { git add -A && git commit -qm "$line"; } ;;
    stage) [ $((n % 2)) -ne 0 ] || git add -A ;;
    esac
    sleep 0.05
done
"""

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGKILL, signal.SIGKILL)

_STEP = 0.05  # seconds between two actions
_PATIENCE = 300.0  # seconds until everything has ended, on a machine that is busy with other work


def session(agent: str) -> list[str]:
    """Return the command of a session of ours, whose agent runs three times."""
    options = ("--isolation", "require", "--max-iterations", "3", "--grace", "1s")
    return [PROGRAM, "run", *options, "--", agent]


def session_that_loses(agent: str) -> list[str]:
    """Return a command that does what a session does, but removes the worktree without a look at it."""
    return [
        *("sh", "-c"),
        f"""
        RALPH_SESSION_ID=$$-a; RALPH_ITERATION=1; export RALPH_SESSION_ID RALPH_ITERATION
        git worktree add -q -b "ralph/$$" ".ralph/worktrees/$$" 2>/dev/null || exit 1
        (cd ".ralph/worktrees/$$" && exec {shlex.quote(agent)})
        git worktree remove --force ".ralph/worktrees/$$"
        """,
    ]


class Remains(NamedTuple):
    """What is left of a storm.

    Attributes:
        printed: the lines that agents noted.
        lost: those of them that are in no branch, saved work, snapshot or worktree.
        kept: worktrees that are still there.
        broken: refs that name a commit which is not whole, with git's words; not those that a sweep names.
        fsck: what ``git fsck --full`` says.
        status: exit status and errors of each of the user's last commands that failed.
        reasons: why worktrees were kept, with their number.

    """

    printed: set[str]
    lost: set[str]
    kept: list[str]
    broken: dict[str, str]
    fsck: str
    status: dict[str, str]
    reasons: dict[str, int]

    def summary(self) -> str:
        """Return what there is, for a report."""
        return f"{len(self.printed)} lines, {len(self.kept)} worktrees kept {self.reasons}"

    def faults(self) -> dict[str, object]:
        """Return what must be empty."""
        lost = Counter(line.split()[1] for line in self.lost)
        found = {
            "lost": (dict(lost), sorted(self.lost)[:10]) if lost else None,
            "broken": self.broken,
            "fsck": self.fsck,
            "status": self.status,
        }
        return {name: there for name, there in found.items() if there}


@dataclass
class GcStorm:
    """What goes on in one repository.

    Attributes:
        repo: the repository.
        directory: a free directory outside it.
        seed: the choices follow from it; the moments do not.
        sessions: how many there are at once.
        command: makes the command of a session from that of its agent.

    """

    repo: Repo
    directory: Path
    seed: int
    sessions: int = 20
    command: Callable[[str], list[str]] = session
    started: int = 0
    collected: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost_commits: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 -- the same choices each time
        self._journal = self.directory / "journal"
        self._journal.mkdir(parents=True)
        agent = self.directory / "agent"
        agent.write_text(AGENT.replace("{journal}", shlex.quote(os.fspath(self._journal))))
        agent.chmod(0o755)
        self._agent = os.fspath(agent)
        self._numbered: dict[int, subprocess.Popen[bytes]] = {}
        self._ended = 0
        self._sweeps: list[subprocess.Popen[bytes]] = []
        self._collector: subprocess.Popen[bytes] | None = None

    def rage(self, seconds: float) -> None:
        """Let it rage for a time, and until sessions have ended in each way; then wait for all ends."""
        begun = time.monotonic()
        try:
            while (passed := time.monotonic() - begun) < seconds or not self._is_enough():
                assert passed < seconds + _PATIENCE, f"sessions have ended only so: {self.ends}"
                self._act()
                time.sleep(_STEP)
        finally:
            self._calm()

    def look(self) -> Remains:
        """Sweep, and return what is left."""
        swept = subprocess.run(
            (PROGRAM, "sweep"), cwd=self.repo.path, capture_output=True, check=False, text=True
        )
        assert swept.returncode in {0, 5}, swept.stderr
        printed = {line for path in self._journal.iterdir() for line in path.read_text().splitlines()}
        refs = self._git("for-each-ref", "--format=%(refname)").stdout.split()
        broken = {}
        found: set[str] = set()
        for ref in refs:
            listed = self._git("rev-list", "--objects", ref)
            if listed.returncode or listed.stderr:
                broken[ref] = listed.stderr
            found |= self._lines_in(ref)
        kept = sorted(self.repo.path.glob(".ralph/worktrees/*"))
        for top in kept:
            for path in top.glob("work/*/*"):
                found |= set(path.read_text().splitlines())
        reports = [
            json.loads(path.read_text()) for path in self.repo.path.glob(".ralph/run/sessions/*/report.json")
        ]
        self._do_without(kept, swept.stdout, broken)
        fsck = self._git("fsck", "--full", "--no-dangling", "--no-progress")
        status = {}
        for words in (("gc", "--quiet"), ("log", "--all", "--oneline"), ("gc", "--quiet", "--prune=now")):
            done = self._git(*words)
            if done.returncode:
                status[shlex.join(words)] = f"{done.returncode}: {done.stderr}"
        reasons = Counter(report["kept"] for report in reports if report["kept"])
        return Remains(
            printed=printed,
            lost=printed - found,
            kept=[path.name for path in kept],
            broken=broken,
            fsck=fsck.stdout + fsck.stderr,
            status=status,
            reasons=dict(reasons),
        )

    def _do_without(self, kept: list[Path], told: str, broken: dict[str, str]) -> None:
        """Remove what a ``git commit`` of an agent has lost to the gc beside it, if the sweep has said so.

        Git itself has this race. The session saves the files elsewhere, and keeps the worktree and the branch
        until its user mends the commit, or does without it.
        """
        for worktree in kept:
            agent_id = worktree.name[-4:]
            ref = f"refs/heads/ralph/{agent_id}"
            if ref in broken and f"the files are saved on ralph/{agent_id}-wip" in told:
                self._git("worktree", "remove", "--force", "--force", os.fspath(worktree))
                self._git("update-ref", "--no-deref", "-d", ref)
                del broken[ref]
                self.lost_commits += 1

    def summary(self) -> str:
        """Return what has happened, for a report."""
        lost = f"{self.lost_commits} commits lost to git, and told"
        return f"{self.started} sessions, their ends {dict(self.ends)}, {lost}, beside {dict(self.collected)}"

    def _lines_in(self, ref: str) -> set[str]:
        """Return the lines of agents in the files of a commit, and in the index that was saved with it."""
        found: set[str] = set()
        for tip in (ref, f"{ref}^2"):
            rows = self._git("ls-tree", "-r", tip, "work/").stdout.splitlines()
            oids = "".join(f"{row.split()[2]}\n" for row in rows)
            content = self._git("cat-file", "--batch", stdin=oids).stdout if oids else ""
            found |= {line for line in content.splitlines() if line.count(" ") == 3}
        return found

    def _act(self) -> None:
        """Do one thing; the user's git collects garbage all the time."""
        for number, one in [*self._numbered.items()]:
            if (status := one.poll()) is not None:
                self.ends[str(status)] += 1
                del self._numbered[number]
        self._sweeps = [one for one in self._sweeps if one.poll() is None]
        if self._collector is None or self._collector.poll() is not None:
            words = self._random.choice(COLLECTIONS)
            self.collected[shlex.join(words)] += 1
            self._collector = self._launch("git", *words)
        if len(self._numbered) < self.sessions:
            self.started += 1
            self._numbered[self.started] = self._launch(*self.command(self._agent))
            return
        choice = self._random.random()
        if choice < 0.06:
            self._end_one()
        elif choice < 0.11 and len(self._sweeps) < 2:
            self._sweeps.append(self._launch(PROGRAM, "sweep"))
        elif choice < 0.13 and self._sweeps:
            self._sweeps[0].kill()

    def _end_one(self) -> None:
        """End one of two thirds of the sessions, but no more of them than agents have begun to work."""
        numbered = [one for number, one in self._numbered.items() if number % 3 and one.poll() is None]
        if numbered and self._ended < len(os.listdir(self._journal)):  # noqa: PTH208 -- only their number
            self._ended += 1
            self._random.choice(numbered).send_signal(self._random.choice(ENDS))

    def _is_enough(self) -> bool:
        """Return whether sessions have ended by themselves, by a signal and by a kill."""
        return self.ends["0"] > 0 and self.ends["-9"] > 0 and sum(self.ends.values()) > self.sessions

    def _calm(self) -> None:
        for one in self._numbered.values():
            one.terminate()
        collector = [self._collector] if self._collector else []
        for other in (*self._numbered.values(), *self._sweeps, *collector):
            other.wait(_PATIENCE)

    def _launch(self, *words: str) -> subprocess.Popen[bytes]:
        log = os.open(self.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            return subprocess.Popen(
                words, cwd=self.repo.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        finally:
            os.close(log)

    def _git(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ("git", *words), cwd=self.repo.path, input=stdin, capture_output=True, check=False, text=True
        )
