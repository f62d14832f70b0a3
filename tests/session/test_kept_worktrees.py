"""A worktree that must stay: the printed command saves and removes it, and the count is of what was saved."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.mounts import mounted
from tests.support.needs import CAPABILITY_DROPS, MOUNTS, needs
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Result, Session, command, run, start
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Root reads and changes every file; a user does not."""


def typed(line: str, cwd: Path, under: Sequence[str] = WITHOUT_RIGHTS) -> subprocess.CompletedProcess[str]:
    """Type a line of a hint, as a user would."""
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        (*under, "sh", "-c", line), cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def _rm(repo: Repo, name: str) -> Result:
    with start("rm", name, cwd=repo.path, under=WITHOUT_RIGHTS) as process:
        stdout, stderr = process.communicate()
        return Result(process.wait(), stdout, stderr.decode(), None)


def _kept(result: Result) -> Path:
    path = Path(result.report["workspace"])
    assert path.is_dir(), result.stderr
    return path


CLOSED = {
    "a directory that cannot be searched": ("mkdir d; echo 1 > d/f; chmod 000 d", {"d/f", "ok.txt"}),
    "a file that cannot be read": ("echo 1 > f; chmod 000 f", {"f", "ok.txt"}),
    "a top that cannot be changed": ("chmod 555 .", {"ok.txt"}),
}


@needs(CAPABILITY_DROPS)
@pytest.mark.parametrize(("agent", "saved"), CLOSED.values(), ids=CLOSED)
def test_the_hint_opens_what_is_closed(repo: Repo, agent: str, saved: set[str]) -> None:
    """The session, its report and rm print one line, which saves the rest and removes the worktree."""
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", f"echo 2 > ok.txt; {agent}", under=WITHOUT_RIGHTS)
    path, agent_id = _kept(ended), ended.report["id"]
    line = f"chmod -R u+rwX {path} && ralph-wrap rm {agent_id}"
    [warning] = [event for event in ended.warnings if event["event"] == "worktree.kept"]
    assert (warning["hint"], ended.report["way_out"]) == (line, line)
    refused = _rm(repo, agent_id)
    assert (refused.status, refused.narration[-1]["hint"]) == (5, line)
    done = typed(line, repo.path)
    assert (done.returncode, path.exists()) == (0, False), done.stderr
    names = repo.git("ls-tree", "-r", "--name-only", f"ralph/{agent_id}-wip").splitlines()
    assert set(names) >= saved


BESIDE = {
    "a read-only directory": "mkdir build; chmod 555 build",
    "a file that cannot be read": "echo 1 > f; chmod 000 f",
    "a directory that cannot be searched": "mkdir build; chmod 000 build",
}


@needs(CAPABILITY_DROPS)
@pytest.mark.parametrize("agent", BESIDE.values(), ids=BESIDE)
def test_no_hint_opens_what_is_not_the_reason(repo: Repo, agent: str) -> None:
    """A repository in the worktree keeps it, whatever the modes of the files are."""
    nested = "echo build/ > .gitignore; git init -q inner; echo 1 > inner/work"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", f"{nested}; {agent}", under=WITHOUT_RIGHTS)
    path, agent_id = _kept(ended), ended.report["id"]
    assert "nested repository inner cannot be saved" in ended.report["kept"]
    moves = f"mv -T {path}/inner {path}.inner && ralph-wrap rm {agent_id}"
    assert ended.report["way_out"] == moves
    refused = _rm(repo, agent_id)
    assert (refused.status, refused.narration[-1]["hint"]) == (5, moves)
    assert path.exists()


def test_a_nested_repository_can_be_moved_away(repo: Repo) -> None:
    """By the printed command; then the worktree goes, and the repository has all of its files."""
    agent = 'for name in inner \'deep/an inner\'; do git init -q "$name"; echo 1 > "$name/work"; done'
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    path = _kept(ended)
    assert typed(ended.report["way_out"], repo.path).returncode == 0
    assert not path.exists()
    for name in ("inner", "deep-an inner"):
        assert (path.with_name(f"{path.name}.{name}") / "work").read_text() == "1\n"


@needs(CAPABILITY_DROPS)
def test_the_count_is_of_what_was_saved(repo: Repo) -> None:
    """A file that cannot be read is named by git, and saved by nobody."""
    agent = "echo 1 > secret; chmod 000 secret; echo 2 > ok.txt"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent, under=WITHOUT_RIGHTS)
    assert ended.report["saved_paths"] == ["ok.txt"]
    assert "secret" in ended.report["kept"]


@needs(CAPABILITY_DROPS)
def test_a_worktree_that_was_moved_is_moved_back(repo: Repo) -> None:
    """By ``git worktree move``: the command in the hint moves, saves and removes it."""
    ended = run(repo.path, "-n", "1", "--on-dirty", "keep", "--", "sh", "-c", "echo new > new")
    path, agent_id = _kept(ended), ended.report["id"]
    elsewhere = repo.path.parent / "else where"
    repo.git("worktree", "move", "-f", "-f", path, elsewhere)
    refused = command("rm", agent_id, cwd=repo.path)
    assert refused.status == 5
    assert (elsewhere / "new").exists()
    done = typed(refused.narration[-1]["hint"], repo.path, under=())
    assert done.returncode == 0, done.stderr
    assert not path.exists()
    assert not elsewhere.exists()
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"new\n"


def test_what_git_leaves_of_a_worktree_can_be_moved_aside(repo: Repo) -> None:
    """After the other command of the hint, git has forgotten a directory that it could not delete."""
    agent = "mkdir d; echo 1 > d/f; chmod 000 d"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent, under=WITHOUT_RIGHTS)
    path, agent_id = _kept(ended), ended.report["id"]
    typed(f"git worktree remove -f -f {path}", repo.path)
    assert path.exists()
    refused = _rm(repo, agent_id)
    [line] = [line for line in refused.narration[-1]["hint"].split("\n") if " mv " in line]
    done = typed(line.partition(": ")[2], repo.path)
    assert (done.returncode, path.exists()) == (0, False), done.stderr
    assert path.with_name(f"{path.name}.moved").exists()


def test_a_session_that_cannot_be_removed_stops_no_other(repo: Repo) -> None:
    """The error names it, and the worktrees of all others go."""
    agent = ("-n", "1", "--keep-worktree", "--", "sh", "-c", "echo 1 > ok.txt")
    ended = [run(repo.path, *agent) for _ in range(2)]
    stuck = min(ended, key=lambda result: result.report["session"])
    assert stuck.directory is not None
    (stuck.directory / f".report.json.{'a' * 16}").mkdir()  # in the place of a temporary file of ours
    removed = command("rm", "--all", "--yes", cwd=repo.path)
    assert removed.status == 125
    assert f"rm of session {stuck.directory.name} failed: " in removed.stderr
    assert not any(Path(result.report["workspace"]).exists() for result in ended if result is not stuck)


@needs(MOUNTS)
def test_a_mount_is_named_with_the_command_that_takes_it_away(repo: Repo) -> None:
    """The worktree stays while something is mounted in it."""
    agent = "mkdir m; mount -t tmpfs none m; echo 1 > ok.txt"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    path, agent_id = _kept(ended), ended.report["id"]
    line = ended.report["way_out"]
    assert line == f"sudo umount {path}/m && ralph-wrap rm {agent_id}"
    done = typed(line.removeprefix("sudo "), repo.path, ())
    assert (done.returncode, path.exists()) == (0, False), done.stderr


def test_processes_are_named_where_rm_refuses(repo: Repo) -> None:
    """The hint lists them, and names rm for the time after their end."""
    ended = run(repo.path, "-n", "1", "--keep-worktree", "--", "sh", "-c", "echo 1 > ok.txt")
    path, agent_id = _kept(ended), ended.report["id"]
    with subprocess.Popen(("sleep", "600"), cwd=path) as visitor:
        try:
            refused = command("rm", agent_id, cwd=repo.path)
        finally:
            visitor.kill()
    lines = refused.narration[-1]["hint"].split("\n")
    assert lines[:2] == [
        f"to see the processes: ps -fp {visitor.pid}",
        f"when this reason is gone: ralph-wrap rm {agent_id}",
    ]
    assert ["hint" in event for event in refused.warnings if event["event"] == "worktree.kept"] == [False]
    assert typed(lines[1].partition(": ")[2], repo.path, ()).returncode == 0
    assert not path.exists()


def test_a_session_that_had_no_time_has_not_crashed(repo: Repo, script: Callable[[str], str]) -> None:
    """A second TERM leaves the saved worktree to the next start, and ps says what the report says."""
    stubborn = script("trap '' TERM INT HUP; echo stubborn >> file.txt; touch ready; sleep 600")
    with Session(repo.path, "-n", "3", "--", stubborn) as session:
        session.wait_for("agent.started")
        eventually(lambda: any((repo.path / ".ralph/worktrees").glob("*/ready")), "the agent")
        session.send(signal.SIGTERM)
        session.wait_for("signal.received")
        session.send(signal.SIGTERM)
        ended = session.finish()
    _kept(ended)
    row = command("ps", cwd=repo.path).stdout.decode().splitlines()[1]
    assert (" stopped " in row, "crashed" in row, ended.report["saved"] in row) == (True, False, True)
    assert command("sweep", cwd=repo.path).status == 0
    assert not Path(ended.report["workspace"]).exists()


@needs(MOUNTS)
def test_a_session_that_had_no_room_for_its_report_has_not_crashed(tmp_path: Path) -> None:
    """Its task may be done: after a sweep, nobody says that it was killed, or starts its agent again."""
    starts = tmp_path / "starts"
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=12m", "none") as disk:
        repo = make_repo(disk / "project")
        agent = (
            f"echo 1 >> {starts}; echo work >> file.txt; head -c 20m /dev/zero > fill 2>/dev/null;"
            " echo '<promise>COMPLETE</promise>'"
        )
        ended = run(repo.path, "--", "sh", "-c", agent)
        [path] = [*(repo.path / ".ralph/worktrees").iterdir()]
        assert (ended.status, [*repo.path.glob(".ralph/run/sessions/*/report.json")]) == (0, [])
        (path / "fill").unlink()
        swept = command("sweep", cwd=repo.path)
        assert (swept.status, path.exists()) == (0, False), swept.stderr
        assert "crashed" not in command("ps", "--all", cwd=repo.path).stdout.decode()
        assert command("wait", path.name[-4:], cwd=repo.path).status == 125
        assert command("resume", "--all", cwd=repo.path).status == 1
        assert starts.read_text() == "1\n"


@needs(MOUNTS)
def test_a_sweep_saves_what_a_full_disk_left(tmp_path: Path) -> None:
    """The work stays in the worktree, ps says how the session ended, and the command of the hint saves it."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=12m", "none") as disk:
        repo = make_repo(disk / "project")
        agent = "echo work >> file.txt; head -c 20m /dev/zero > fill 2>/dev/null; true"
        ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
        [warning] = [event for event in ended.warnings if event["event"] == "worktree.kept"]
        [path] = [*(repo.path / ".ralph/worktrees").iterdir()]
        (path / "fill").unlink()
        row = command("ps", cwd=repo.path).stdout.decode().splitlines()[1]
        assert "crashed" not in row
        again = warning["hint"].rpartition(": ")[2]
        assert again == "ralph-wrap sweep"
        swept = command("sweep", cwd=repo.path)
        assert swept.status == 0, swept.stderr
        assert not path.exists()
        [wip] = [name for name in repo.branches() if name.endswith("-wip")]
        assert "work" in repo.git("show", f"{wip}:file.txt")
