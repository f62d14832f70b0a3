"""A machine dies with a session: the next one has its last mirrored work in the worktree.

Clones of one bare repository are the machines.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.machines import claim_of, is_mirrored, killed, refs, wait_for_pushes
from tests.support.repo import Repo
from tests.support.sessions import Result, Session, command, start
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = 'remote_beat = "200ms"\n'
HANG = 'echo $$ > "$OUT/agent.pid"; exec sleep 1000'


@pytest.fixture(autouse=True)
def _machines(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents write beside the project, and sessions push often."""
    monkeypatch.setenv("OUT", str(repo.path.parent))
    monkeypatch.setenv("RALPH_TRUST", "1")
    repo.write(".ralph/config.toml", QUICK)


def resumed(machine: Repo, agent_id: str, look: str) -> Result:
    """Take a session over, with one iteration of another agent."""
    machine.write(
        ".ralph/config.toml", QUICK + '[agents.shell]\ncommand = ["sh", "-c", "eval \\"$LOOK\\""]\n'
    )
    words = (
        "resume",
        agent_id,
        "--remote",
        "origin",
        "--take-over",
        "-n",
        "1",
        "--agent",
        "shell",
        "-p",
        "on",
    )
    return command(*words, cwd=machine.path, env={"LOOK": look})


def warnings(result: Result) -> str:
    """Return the warnings of a command."""
    return "\n".join(line for line in result.stderr.splitlines() if '"warning"' in line)


STATE = (
    "{ git status --porcelain; git diff --cached --name-status; git diff --name-status;"
    " ls -l --time-style=+ run link;"  # modes and targets: a file that comes back is new
    ' cat new sub/deep file.txt part; git show :part; git symbolic-ref HEAD; } > "$OUT/STATE" 2>&1'
)
WORK = (
    "echo keep > gone; echo old > run; git add gone run; git commit -qm one; rm gone; chmod +x run;"
    " ln -s file.txt link; echo new > new; mkdir sub; echo deep > sub/deep; echo changed >> file.txt;"
    " echo staged > part; git add part; echo disk > part"
)


def test_everything_is_where_it_was(repo: Repo, remote: Repo, other: Repo) -> None:
    """Files, deletions, new files, modes, symlinks and the index; and the remote keeps the snapshot."""
    out = repo.path.parent
    script = f"{WORK}; echo > last; {STATE.replace('STATE', 'before')}; {HANG}"
    agent_id = killed(repo, script, until="last")
    [snapshot] = [oid for ref, oid in refs(remote).items() if "/snapshots/" in ref]
    result = resumed(other, agent_id, STATE.replace("STATE", "after"))
    assert result.status == 0, result.stderr
    assert (out / "after").read_text() == (out / "before").read_text()
    assert "AM part" in (out / "after").read_text()
    assert remote.show(f"ralph/{agent_id}-wip:sub/deep") == b"deep\n"
    assert snapshot in refs(remote).values()  # the session has pushed it by another name
    assert warnings(result) == ""


def test_a_newer_commit_of_the_branch_wins(repo: Repo, remote: Repo, other: Repo) -> None:
    """Each other path of the snapshot is back; the warning names the older ones, and their snapshot stays."""
    agent_id = killed(repo, f"echo draft > both; echo mine > mine; {HANG}", until="mine")
    [snapshot] = [oid for ref, oid in refs(remote).items() if "/snapshots/" in ref]
    other.git("fetch", "-q", "origin", f"ralph/{agent_id}")
    other.git("checkout", "-q", "--detach", "FETCH_HEAD")
    other.write("both", "final\n")
    other.commit("after the snapshot")
    other.git("push", "-q", "origin", f"HEAD:ralph/{agent_id}")
    other.git("checkout", "-q", "main")
    result = resumed(other, agent_id, 'git status --porcelain > "$OUT/after"; cat both mine >> "$OUT/after"')
    assert (repo.path.parent / "after").read_text() == "?? mine\nfinal\nmine\n", result.stderr
    assert "not put back from it: both" in warnings(result)
    [report] = [line for line in map(json.loads, result.stderr.splitlines()) if "ended_by" in line]
    took = report["taken_up"]
    assert (took["snapshot"], took["session"][-4:], took["older"]) == (snapshot, agent_id, ["both"])
    assert f"git diff ralph/{agent_id} {snapshot[:12]}" in warnings(result)
    assert other.show(f"{snapshot}:both") == b"draft\n"
    assert snapshot in refs(remote).values()


def die(machine: Repo, agent_id: str, script: str, until: Callable[[], object]) -> None:
    """Take a session over, and kill it with its agent once something is true."""
    pid_file = machine.path.parent / "agent.pid"
    pid_file.unlink(missing_ok=True)
    shell = f'[agents.shell]\ncommand = ["sh", "-c", {json.dumps(script)}]\n'
    machine.write(".ralph/config.toml", QUICK + shell)
    words = ("resume", agent_id, "--remote", "origin", "--take-over", "--agent", "shell", "-p", "on")
    with start(*words, cwd=machine.path) as process:
        eventually(
            lambda: until() and pid_file.exists() and pid_file.read_text(), "the work of the second session"
        )
        wait_for_pushes(Repo(machine.path.parent / "remote.git"), agent_id, 2)
        process.kill()
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


@pytest.fixture
def third(remote: Repo, tmp_path: Path) -> Repo:
    """Return a clone of the remote for one more machine."""
    return Repo(Path(shutil.copytree(remote.path.parent / "other", tmp_path / "third", symlinks=True)))


def test_committed_work_does_not_come_back_twice(repo: Repo, remote: Repo, other: Repo, third: Repo) -> None:
    """A session puts saved work back, commits a newer state of it, and dies: the branch has all of it."""
    agent_id = killed(repo, f"echo one > made; {HANG}", until="made")
    script = f"echo two > made; git add made; git commit -qm made; {HANG}"
    die(other, agent_id, script, lambda: claim_of(remote, agent_id)["work"] == "")
    assert f"refs/heads/ralph/{agent_id}-wip" in refs(remote)
    result = resumed(third, agent_id, 'git status --porcelain > "$OUT/after"; cat made >> "$OUT/after"')
    assert result.status == 0, result.stderr
    assert (repo.path.parent / "after").read_text() == "two\n"
    assert f"refs/heads/ralph/{agent_id}-wip" not in refs(remote)
    assert any(remote.show(f"{ref}:made") == b"one\n" for ref in refs(remote) if "/snapshots/" in ref)


def test_the_work_survives_two_dead_machines(repo: Repo, remote: Repo, other: Repo, third: Repo) -> None:
    """The second one dies with changes of its own: the third has the newest state, and none is lost."""
    agent_id = killed(repo, f"echo one > made; {HANG}", until="made")
    script = f"cat made > copy; echo two > made; {HANG}"
    die(other, agent_id, script, lambda: is_mirrored(remote, agent_id, "copy"))
    result = resumed(third, agent_id, 'git status --porcelain > "$OUT/after"; cat made copy >> "$OUT/after"')
    assert (repo.path.parent / "after").read_text() == "?? copy\n?? made\ntwo\none\n", result.stderr
    contents = {
        remote.git("show", f"{ref}:made", check=False) for ref in refs(remote) if "/claims/" not in ref
    }
    assert {"one", "two"} <= contents


def test_a_branch_of_the_agent_comes_back(repo: Repo, other: Repo) -> None:
    """It has committed all its work elsewhere; HEAD is at this commit again."""
    commit = "git checkout -q -b own; echo x > x; git add x; git commit -qm x"
    agent_id = killed(repo, f"{commit}; {HANG}", until="x")
    result = resumed(
        other, agent_id, 'git status --porcelain > "$OUT/after"; git log -1 --format=%s >> "$OUT/after"'
    )
    assert (repo.path.parent / "after").read_text() == "x\n", result.stderr
    assert "HEAD is detached" in warnings(result)


@pytest.mark.usefixtures("remote")
def test_the_machine_of_a_session_knows_more_than_the_remote(repo: Repo) -> None:
    """The agent has removed a file since the last push; the dead session is swept, and its end counts."""
    agent_id = killed(repo, f"echo x > x; {HANG}", until="x")
    [worktree] = (repo.path / ".ralph/worktrees").iterdir()
    (worktree / "x").unlink()
    result = resumed(repo, agent_id, 'git status --porcelain > "$OUT/after"')
    assert (repo.path.parent / "after").read_text() == "", result.stderr


def test_a_session_that_was_killed_before_its_first_push_has_no_work(
    repo: Repo, remote: Repo, other: Repo
) -> None:
    """The error says so, names the machine that can go on, and gives a command that deletes the claim."""
    repo.write(".ralph/config.toml", 'remote_beat = "10m"\n')
    with Session(repo.path, "--remote", "origin", "--", "sh", "-c", "exec sleep 1000") as session:
        agent_id = session.directory.name.rpartition("-")[2]
        eventually(lambda: f"refs/ralph/claims/{agent_id}" in refs(remote), "the claim")
        session.process.kill()
    assert f"refs/heads/ralph/{agent_id}" not in refs(remote)
    refused = command("resume", agent_id, "--remote", "origin", "--take-over", cwd=other.path)
    assert (refused.status, "was killed before its first push" in refused.stderr) == (4, True), refused.stderr
    assert "restore" not in refused.stderr
    assert f"resume {agent_id} --remote origin" in refused.stderr
    other.git("push", "-q", "origin", f":refs/ralph/claims/{agent_id}")
    assert refs(remote) == {}
