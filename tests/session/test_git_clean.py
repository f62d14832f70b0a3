"""A user cleans the project's checkout while a session works there."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import needs_pid_namespaces
from tests.support.orphans import sweep
from tests.support.pid1 import NAMESPACE
from tests.support.sessions import PROGRAM, Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.repo import Repo

WAITS = "until [ -e $RALPH_PROJECT/../go-$RALPH_ITERATION ]; do sleep 0.05; done"
WORK = f'echo work >> "work-$RALPH_ITERATION"; echo "iteration $RALPH_ITERATION"; {WAITS}'


ELSEWHERE = """
"$0" run -n 2 -- sh -c 'while sleep 0.05; do echo line >> work; done' & session=$!
until [ -e ../kill ]; do sleep 0.05; done
kill -KILL $session; wait $session; touch ../killed; sleep 600
"""
"""A session as in another container. Its wrapper can be killed; its agent writes on and on."""


@contextlib.contextmanager
def _elsewhere(repo: Repo) -> Iterator[None]:
    """Have a session run in a pid namespace of its own; at the end the namespace is gone."""
    repo.write(".gitignore", ".ralph/worktrees/\n")
    repo.commit("an ignore rule")
    container = subprocess.Popen(
        (*NAMESPACE, "sh", "-c", ELSEWHERE, PROGRAM), cwd=repo.path, stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/work")], "the agent to work")
        yield
    finally:
        container.kill()
        container.wait()


def _clean_and_kill(repo: Repo) -> None:
    """Clean the checkout, wait until the session has its files again, and kill its wrapper."""
    repo.git("clean", "-fdxq")
    eventually(lambda: _listed(repo) == ["live"], "the session to be listed")
    (repo.path.parent / "kill").touch()
    eventually((repo.path.parent / "killed").exists, "the wrapper to be killed")


def _sweep_elsewhere(repo: Repo, *options: str) -> tuple[int, str]:
    """Sweep as in a third container, which sees no process of the session; return status and messages."""
    words = (*NAMESPACE, PROGRAM, "sweep", *options)
    swept = subprocess.run(words, cwd=repo.path, capture_output=True, text=True, check=False)
    return swept.returncode, swept.stderr


def _is_working(repo: Repo) -> bool:
    (work,) = repo.path.glob(".ralph/worktrees/*/work")
    size = work.stat().st_size
    eventually(lambda: work.stat().st_size > size, "the agent to write")
    return True


@needs_pid_namespaces
def test_a_sweep_elsewhere_leaves_a_living_agent_its_worktree(repo: Repo) -> None:
    """The lock that it inherited is in its place again. After its end all is saved."""
    with _elsewhere(repo):
        _clean_and_kill(repo)
        status, said = _sweep_elsewhere(repo)
        assert (status, "are not visible here" in said) == (5, True), said
        assert _is_working(repo)
    assert _sweep_elsewhere(repo)[0] == 0
    (wip,) = [name for name in repo.branches() if name.endswith("-wip")]
    assert repo.show(f"{wip}:work").startswith(b"line\n")
    assert repo.worktrees() == []


@needs_pid_namespaces
def test_a_sweep_elsewhere_leaves_an_agent_that_no_lock_shows(repo: Repo) -> None:
    """The file could not be put back, so nothing but the word of its user says that the agent is gone."""
    with _elsewhere(repo):
        (second,) = repo.path.glob(".git/worktrees/*/ralph-wrap-agent.lock")
        second.unlink()
        _clean_and_kill(repo)
        status, said = _sweep_elsewhere(repo)
        assert (status, "nothing here shows whether" in said) == (5, True), said
        assert _is_working(repo)
    (name,) = [path.stem for path in repo.path.glob(".ralph/run/agents/*.json")]
    assert _sweep_elsewhere(repo)[0] == 5
    assert _sweep_elsewhere(repo, "--adopt", name)[0] == 0
    assert repo.show(f"ralph/{name}-wip:work").startswith(b"line\n")
    assert repo.worktrees() == []


@pytest.fixture
def working(repo: Repo, script: Callable[[str], str]) -> Iterator[Session]:
    """Yield a session in the middle of its first iteration; the file ``go-<n>`` ends the n-th one."""
    repo.write(".gitignore", ".ralph/worktrees/\n")
    repo.commit("an ignore rule")
    with Session(repo.path, "-n", "2", "--", script(WORK)) as session:
        session.wait_for("agent.started")
        eventually(lambda: _output(session) == b"iteration 1\n", "the output")
        yield session


def _output(session: Session) -> bytes:
    path = session.directory / "output.log"
    return path.read_bytes() if path.exists() else b""


def _go(repo: Repo, *iterations: int) -> None:
    for number in iterations:
        (repo.path.parent / f"go-{number}").touch()


def _listed(repo: Repo) -> list[str]:
    return [row["verdict"] for row in json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]]


def test_ps_and_stop_find_the_session_again(repo: Repo, working: Session) -> None:
    """It writes its record anew while its agent still works."""
    repo.git("clean", "-fdxq")
    eventually(lambda: _listed(repo) == ["live"], "the session to be listed")
    stopped = command("stop", "--all", cwd=repo.path)
    assert stopped.status == 0, stopped.stderr
    ended = working.finish()
    assert ended.ending == ("stop", 1, 0)
    assert repo.show(f"{ended.report['saved']}:work-1") == b"work\n"
    assert repo.worktrees() == []


def test_its_logs_come_back_whole(repo: Repo, working: Session) -> None:
    """With what they held before, and what came after."""
    repo.git("clean", "-fdxq")
    _go(repo, 1, 2)
    ended = working.finish()
    assert ended.ending == ("max-iterations", 2, 0), ended.stderr
    assert ended.output_log == b"iteration 1\niteration 2\n"
    assert ended.names[0] == "session.registered"
    assert ended.names.count("session.files_restored") == 1
    assert ended.names[-1] == "session.released"


def test_it_can_be_resumed_after_its_end(repo: Repo, working: Session) -> None:
    """The file that says how it was started is written anew, too."""
    repo.git("clean", "-fdxq")
    _go(repo, 1, 2)
    ended = working.finish()
    resumed = command("resume", ended.report["id"], "-n", "1", cwd=repo.path)
    assert resumed.status == 0, resumed.stderr
    assert repo.show(f"{ended.report['saved']}:work-1") == b"work\nwork\n"


def test_a_killed_one_is_swept(repo: Repo, working: Session) -> None:
    """Its new lock is held, and freed by its death."""
    repo.git("clean", "-fdxq")
    eventually(lambda: _listed(repo) == ["live"], "the session to be listed")
    working.send(signal.SIGKILL)
    working.process.wait()
    assert sweep(repo).status == 0
    (wip,) = [name for name in repo.branches() if name.endswith("-wip")]
    assert repo.show(f"{wip}:work-1") == b"work\n"
    assert repo.worktrees() == []


def test_the_ignore_rule_comes_back(repo: Repo, script: Callable[[str], str]) -> None:
    """It stood in a file that git does not track."""
    with Session(repo.path, "-n", "1", "--", script(WORK)) as session:
        session.wait_for("agent.started")
        repo.git("clean", "-fdxq")
        assert not (repo.path / ".gitignore").exists()
        eventually((repo.path / ".gitignore").exists, "the ignore rule")
        _go(repo, 1)
        assert session.finish().status == 0


@pytest.mark.parametrize("how", ["git clean -ffdx", "rm -rf .ralph"])
def test_what_is_gone_with_the_worktree_is_said(repo: Repo, working: Session, how: str) -> None:
    """The work of the first iteration is in its snapshot, and that of the second one is lost."""
    _go(repo, 1)
    working.wait_for("iteration.kept")
    eventually(lambda: _output(working).endswith(b"iteration 2\n"), "the second iteration")
    if how == "rm -rf .ralph":
        shutil.rmtree(repo.path / ".ralph")
    else:
        repo.git("clean", "-ffdxq")
    _go(repo, 2)
    ended = working.finish()
    snapshot = f"refs/ralph/snapshots/{ended.report['id']}/1"
    assert ended.ending == ("leak", 2, 125), ended.stderr
    lost = f"what was neither committed nor staged, and came after the snapshot {snapshot}"
    assert (ended.report["lost"], ended.report["kept"]) == (lost, None)
    assert repo.show(f"{snapshot}:work-1") == b"work\n"
    assert repo.worktrees() == []


def test_a_resumed_session_has_the_work_of_the_deleted_worktree(repo: Repo, working: Session) -> None:
    """The last snapshot is the saved work: in the report, for resume, and by a ref in the end."""
    _go(repo, 1)
    working.wait_for("iteration.kept")
    eventually(lambda: _output(working).endswith(b"iteration 2\n"), "the second iteration")
    repo.git("clean", "-ffdxq")
    _go(repo, 2)
    ended = working.finish()
    agent_id = ended.report["id"]
    assert (ended.report["saved"], ended.report["saved_paths"]) == (f"ralph/{agent_id}-wip", ["work-1"])
    assert repo.show(f"ralph/{agent_id}-wip:work-1") == b"work\n"
    only = repo.git("rev-parse", f"refs/ralph/snapshots/{agent_id}/1")
    resumed = command("resume", agent_id, "-n", "2", cwd=repo.path)
    assert resumed.status == 0, resumed.stderr
    assert only in repo.git("for-each-ref", "--format=%(objectname)").split()
    assert repo.show(f"refs/ralph/snapshots/{agent_id}/1:work-1") == b"work\nwork\n"


def test_a_directory_that_is_a_symlink_now_is_not_followed(
    repo: Repo, working: Session, tmp_path: Path
) -> None:
    """Nothing of the session is written elsewhere."""
    shutil.rmtree(repo.path / ".ralph" / "run")
    (tmp_path / "elsewhere").mkdir()
    (repo.path / ".ralph" / "run").symlink_to(tmp_path / "elsewhere")
    _go(repo, 1, 2)
    ended = working.finish()
    assert ended.status == 0
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    assert "session.files_missing" in {event["event"] for event in ended.warnings}
