"""A storm: many sessions, signals, kills, sweeps, and what people do on the host meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import STRANGERS
from tests.support.directory_listing import listing
from tests.support.processes import left
from tests.support.sessions import PROGRAM, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

KINDS = [("require", 0), ("require", 3), ("clone", 0)]
"""The isolation, and the size of the pool."""

SECONDS = 60.0
"""How long it rages at least: until sessions ended by a signal and by a kill, and the pool was used."""

SESSIONS = 24
"""How many sessions there are at once."""

SEED = 20261121
INSIDE = ".ralph/worktrees/20200102T030405Z-beef"
"""Where the user has a worktree of their own."""

_PATIENCE = 120.0  # seconds more, on a machine that is busy with other work
_STEP = 0.05  # seconds between two actions

AGENT = """
n=0
while [ $n -lt 400 ]; do
    n=$((n + 1)); file=work-$RALPH_SESSION_ID-$n
    echo "$RALPH_SESSION_ID $n" > part; mv part $file
    echo $file >> {journal}/$RALPH_SESSION_ID       # from here on it must not be lost
    [ $((n % 5)) -ne 0 ] || { git add -A && git commit -qm "step $n"; }
    sleep 0.1
done
"""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL, signal.SIGKILL)


class Storm:
    """What goes on in one repository; the choice of actions follows from the seed alone."""

    def __init__(self, repo: Repo, journal: Path, agent: str, isolation: str, *, has_pool: bool) -> None:
        self._repo = repo
        self._isolation = isolation
        self._has_pool = has_pool
        self._random = Random(SEED)  # noqa: S311 -- the same storm each time
        self._agent = agent
        self._journal = journal
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._others: list[subprocess.Popen[bytes]] = []
        self._ended = 0
        self.commits = 0
        self.started = 0

    def rage(self, seconds: float) -> None:
        """Start sessions and let the storm loose on them; then wait until enough agents have worked."""
        actions = [self._end_one] * 6 + [self._sweep] * 3 + [self._kill_a_sweep]
        actions += [self._commit, self._collect_garbage, self._prune, self._fetch, self._fill]
        end = time.monotonic() + seconds
        while time.monotonic() < end or (not self._is_enough() and time.monotonic() < end + _PATIENCE):
            self._sessions = [one for one in self._sessions if one.poll() is None]
            self._others = [one for one in self._others if one.poll() is None]
            if len(self._sessions) < SESSIONS:
                self._start()
            else:
                self._random.choice(actions)()
            time.sleep(_STEP)
        while len(self.written()) <= self.started and time.monotonic() < end + _PATIENCE:
            time.sleep(_STEP)

    def written(self) -> set[str]:
        """Return the names of the files that agents have finished."""
        return {name for path in self._journal.iterdir() for name in path.read_text().split()}

    def endings(self) -> set[str]:
        """Return how sessions have ended so far."""
        paths = self._repo.path.glob(".ralph/run/sessions/*/report.json")
        return {json.loads(path.read_text())["ended_by"] for path in paths}

    def has_taken_warm(self) -> bool:
        """Return whether an agent has worked in a worktree of the pool."""
        paths = self._repo.path.glob(".ralph/run/sessions/*/events.jsonl")
        return any('"warm": true' in path.read_text() for path in paths)

    def calm(self) -> None:
        """End every session that is left, and wait for everything."""
        for one in self._sessions:
            one.terminate()
        for one in (*self._sessions, *self._others):
            one.wait(120)

    def is_swept(self) -> bool:
        """Sweep, which may have many sessions to finish, and return whether it found nothing wrong."""
        return self._launch(PROGRAM, "sweep").wait(2 * _PATIENCE) == 0

    def _is_enough(self) -> bool:
        """Return whether sessions ended in each way, and took worktrees of the pool if there is one."""
        return {"signal", "killed"} <= self.endings() and self.has_taken_warm() >= self._has_pool

    def _launch(self, *argv: str | os.PathLike[str]) -> subprocess.Popen[bytes]:
        nothing = subprocess.DEVNULL
        return subprocess.Popen(argv, cwd=self._repo.path, stdin=nothing, stdout=nothing, stderr=nothing)

    def _start(self) -> None:
        self.started += 1
        options = ("--isolation", self._isolation, "--max-iterations", "1", "--grace", "1s")
        self._sessions.append(self._launch(PROGRAM, "run", *options, "--", self._agent))

    def _end_one(self) -> None:
        """End a session, but no more of them than agents have finished files: a slow machine needs longer."""
        if self._ended >= len(self.written()):
            return
        self._ended += 1
        with contextlib.suppress(ProcessLookupError):
            self._random.choice(self._sessions).send_signal(self._random.choice(ENDING))

    def _sweep(self) -> None:
        if len(self._others) < 4:
            self._others.append(self._launch(PROGRAM, "sweep"))

    def _kill_a_sweep(self) -> None:
        if self._others:
            self._others[0].kill()

    def _commit(self) -> None:
        self._repo.write(f"main-{self.commits}", "x\n")
        self._repo.git("add", f"main-{self.commits}")
        for _ in range(20):  # git itself fails while another process registers a worktree (measured)
            if (
                subprocess.run(
                    ("git", "commit", "-qm", "main"), cwd=self._repo.path, check=False, capture_output=True
                ).returncode
                == 0
            ):
                self.commits += 1
                return
        raise AssertionError("no commit in the main checkout")

    def _collect_garbage(self) -> None:
        self._others.append(self._launch("git", "gc", "--quiet"))

    def _fill(self) -> None:
        self._others.append(self._launch(PROGRAM, "pool", "--fill"))

    def _prune(self) -> None:
        self._repo.git("worktree", "prune", check=False)

    def _fetch(self) -> None:
        self._others.append(self._launch("git", "fetch", "--quiet", "origin"))


def _put_strangers(repo: Repo, theirs: Path) -> Callable[[], object]:
    """Put a user's directories and worktrees among ours, and return what tells whether they are as they were.

    Arguments:
        repo: where.
        theirs: where the user has another worktree, which is moved to a place of ours.

    """
    for stranger in STRANGERS:
        repo.write(f"{stranger}/file", f"of the user, in {stranger}\n")
    inside = repo.path / INSIDE
    repo.git("worktree", "add", "-q", "-b", "inside", theirs)
    repo.git("worktree", "move", theirs, inside)
    repo.git("worktree", "add", "-q", "-b", "outside", theirs)
    for top in (inside, theirs):
        (top / "file.txt").write_text("changed by the user\n")
        (top / "untracked").write_text("the user's own, too\n")
    registrations = repo.path / ".git" / "worktrees"
    places = [repo.path / stranger for stranger in STRANGERS]
    places += [inside, theirs, *(path.resolve() for path in registrations.iterdir())]

    def look() -> dict[Path, dict[str, object]]:
        # Git rewrites reflogs in its gc.
        return {
            stranger: {
                name: entry for name, entry in listing(stranger).items() if not name.startswith("logs")
            }
            for stranger in places
        }

    return look


def _kept(repo: Repo) -> set[str]:
    """Return the names of agents' files on branches and hidden refs, and of those still in a worktree."""
    found = {path.name for path in repo.path.glob(".ralph/*/*/work-*")}
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/heads/ralph/", "refs/ralph/").split():
        found |= {name for name in repo.git("ls-tree", "--name-only", ref).split("\n") if name}
    return found


def _check_pool(repo: Repo, size: int) -> None:
    """Fail unless the pool can be filled, and no warm worktree shows work of a session; then empty it."""
    config = repo.path / ".ralph" / "config.toml"
    filled = command("pool", "--fill", "--json", cwd=repo.path)
    assert filled.status == 0, filled.stderr
    entries = json.loads(filled.stdout)["data"]
    assert [entry["ready"] for entry in entries] == [True] * size, filled.stderr
    for entry in entries:
        assert repo.git("status", "--porcelain", "--ignored", cwd=entry["path"]) == ""
        assert not [*Path(entry["path"]).glob("work-*")]
    config.write_text("pool = 0\n")
    assert command("pool", "--fill", cwd=repo.path).stderr == ""
    config.unlink()


@pytest.mark.storm
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("isolation", "size"), KINDS)
def test_nothing_is_lost_in_a_storm(
    repo: Repo, home: Path, tmp_path: Path, script: Callable[[str], str], isolation: str, size: int
) -> None:
    """Every file that an agent had finished is there afterwards; nothing else is left of any session."""
    journal = tmp_path / "journal"
    journal.mkdir()
    repo.write(".gitignore", ".ralph/worktrees/\n.ralph/config.toml\n")
    repo.commit("rule")
    (repo.path / ".ralph").mkdir(exist_ok=True)
    (repo.path / ".ralph" / "config.toml").write_text(f"pool = {size}\n")
    repo.git("clone", "--quiet", "--bare", repo.path, tmp_path / "origin.git")
    repo.git("remote", "add", "origin", tmp_path / "origin.git")
    strangers = _put_strangers(repo, tmp_path / "theirs")
    before, as_they_were = repo.fingerprint(), strangers()
    agent = script(AGENT.replace("{journal}", os.fspath(journal)))
    storm = Storm(repo, journal, agent, isolation, has_pool=size > 0)
    try:
        storm.rage(SECONDS)
    finally:
        storm.calm()
    eventually(storm.is_swept, "a sweep that finds nothing wrong", 60)
    _check_pool(repo, size)
    assert strangers() == as_they_were
    written = storm.written()
    assert storm.started > SESSIONS, "nothing was ended"
    assert len(written) > storm.started, "the agents did nothing"
    kept = _kept(repo)
    assert written - kept == set(), f"seed {SEED}"
    reports = [json.loads(path.read_text()) for path in repo.path.glob(".ralph/run/sessions/*/report.json")]
    assert storm.has_taken_warm() == (size > 0)
    assert storm.endings() >= {"signal", "killed"}
    assert [report["kept"] for report in reports if report["kept"]] == []
    for name in ("run/agents/*", "run/replicas/*", "run/bundles/*", "clones/*"):
        assert {path.name for path in repo.path.glob(f".ralph/{name}")} <= {".gitignore", "run"}, name
    places = {os.fspath(path.relative_to(repo.path)) for path in repo.path.glob(".ralph/worktrees/*")}
    assert places == {stranger for stranger in STRANGERS if "worktrees" in stranger} | {INSIDE}
    assert {*repo.worktrees()} == {os.fspath(repo.path / INSIDE), os.fspath(tmp_path / "theirs")}
    eventually(lambda: left(home) == {}, "everything to be gone")
    after = repo.fingerprint()
    assert {key: after[key] for key in ("stash", "config", "hooks", "fsck", "HEAD")} == {
        key: before[key] for key in ("stash", "hooks", "fsck", "config", "HEAD")
    }
    assert repo.git("rev-list", "--count", "main") == str(2 + storm.commits)
    assert repo.git("status", "--porcelain") == ""
