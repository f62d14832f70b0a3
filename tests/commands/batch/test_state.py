"""What a batch remembers, and an agent that changes it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.batch.state import BatchState, TaskState, new_task, opened
from ralph_wrap.errors import ConflictError, RalphError, StoppedError, UntrustedError
from ralph_wrap.state import session_start
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.cancel import NEVER
from tests.support.agent_script import PROMISE, TRUSTED
from tests.support.cancelling import cancelled
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.commands.batch.batches import Batch
    from tests.support.repo import Repo

FILE = Path("TASKS.md")


@pytest.fixture
def project(repo: Repo) -> Project:
    """Return a project."""
    return find_project(repo.path, os.environ)


def _opened(project: Project) -> AbstractContextManager[BatchState]:
    return opened(project, project.root / FILE, NEVER)


def _state_file(project: Project) -> Path:
    (path,) = project.root.glob(".ralph/run/batches/*/state.json")
    return path


def test_the_next_batch_knows_what_this_one_has_kept(project: Project) -> None:
    """Another task file has a state of its own; no other batch reads it."""
    task = new_task()._replace(session="20260102T030405Z-a3f2", cost_usd=0.25)
    with _opened(project) as state:
        state.keep("key", task)
    with _opened(project) as state:
        assert (state.tasks, state.spent) == ({"key": task}, 0.25)
    assert _state_file(project).stat().st_mode & 0o077 == 0
    with opened(project, project.root / "OTHER.md", NEVER) as state:
        assert state.tasks == {}


def test_a_batch_is_locked(project: Project) -> None:
    """Another process would do the same tasks."""
    with _opened(project), pytest.raises(ConflictError), _opened(project):
        pass


def _is_lock(path: Path) -> bool:
    return path.exists() and path.resolve().name == "sessions.lock"


def test_a_session_of_a_killed_batch_is_waited_for(project: Project) -> None:
    """It holds the second lock alone; a signal ends the wait."""
    with _opened(project) as state:
        (found,) = (path for path in Path("/proc/self/fd").iterdir() if _is_lock(path))
        held = os.dup(int(found.name))
        assert state.tasks == {}
    ended = opened(project, project.root / FILE, cancelled(15))
    with pytest.raises(StoppedError), ended:
        pass
    os.close(held)
    with _opened(project) as state:
        assert state.tasks == {}


def _tampered(project: Project) -> None:
    """Have an agent say that an open task is done."""
    with _opened(project) as state:
        state.keep("key", TaskState("token"))
    path = _state_file(project)
    path.write_text(path.read_text().replace('"done": false', '"done": true'))


def test_a_changed_state_does_not_count(project: Project) -> None:
    """The message has the command that begins anew."""
    _tampered(project)
    with pytest.raises(UntrustedError) as error, _opened(project):
        pass
    assert f"rm {_state_file(project)}" in error.value.hint


def test_the_user_can_vouch_for_a_state(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another container has another key. The next batch needs no word: the state is signed again."""
    _tampered(project)
    monkeypatch.setenv("RALPH_TRUST", "1")
    with _opened(find_project(project.root, os.environ)) as state:
        assert state.tasks["key"].done
        state.keep("other", new_task())
    monkeypatch.delenv("RALPH_TRUST")
    with _opened(project) as state:
        assert {*state.tasks} == {"key", "other"}


def test_without_the_signature_a_changed_state_would_count(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the task would be lost."""
    monkeypatch.setattr(session_start, "signature", lambda *_: "")
    _tampered(project)
    with _opened(project) as state:
        assert state.tasks["key"].done


@pytest.mark.parametrize("content", ["", "[]", "{", '{"version": 2}', '{"version": 1, "tasks": {}}'])
def test_a_damaged_state_is_an_error(project: Project, content: str) -> None:
    """To begin anew is for the user to say."""
    _tampered(project)
    _state_file(project).write_text(content)
    with pytest.raises(UntrustedError), _opened(project):
        pass


@pytest.mark.parametrize("entry", ["batches", "batches/name"])
def test_a_symlink_is_not_followed(project: Project, tmp_path: Path, entry: str) -> None:
    """An agent would have us write elsewhere."""
    _tampered(project)
    directory = _state_file(project).parent
    moved = directory if entry == "batches/name" else directory.parent
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RalphError, match="is a symlink"), _opened(project):
        pass


def _killed_before_it_wrote_down_the_end(batch: Batch) -> Path:
    """Put the state back as it was during the last task; return the report of its session."""
    batch.during('cp "$RALPH_PROJECT"/.ralph/run/batches/*/state.json "$RALPH_PROJECT/calls.state"\n')
    assert batch.run().status == 0
    batch.during("")
    (batch.repo.path / "calls.state").replace(batch.state)
    reports = batch.repo.path.glob(".ralph/run/sessions/*/report.json")
    return max(reports, key=lambda path: path.stat().st_mtime_ns)  # several ids have the same second


def test_the_report_of_a_session_proves_that_its_task_is_done(batch: Batch) -> None:
    """The batch was killed before it could write that down; no task is done twice."""
    _killed_before_it_wrote_down_the_end(batch)
    assert (batch.run().status, batch.calls) == (0, ["one", "three", "two"])


@pytest.mark.parametrize("forged", [{"proof": None}, {"iterations": 7}, {"resumes": "20260102T030405Z-a3f2"}])
def test_a_forged_report_proves_nothing(batch: Batch, forged: dict[str, object]) -> None:
    """An agent that can write it cannot have its task count as done: the session goes on."""
    path = _killed_before_it_wrote_down_the_end(batch)
    path.write_text(json.dumps(json.loads(path.read_text()) | forged))
    again = batch.run()
    assert (again.status, batch.calls) == (0, ["one", "three", "three", "two"]), again.stderr
    assert "no signature proves it" in again.stderr
    assert len(batch.ids) == 3


def _failed_first_task(batch: Batch) -> str:
    """Run a batch whose first task fails; return the token of this task."""
    batch.during('[ "$task" = one ] && exit 1\n')
    assert batch.run("-j", "1", "--max-failures", "1").status == 1
    batch.during("")
    tasks = json.loads(batch.state.read_text())["tasks"].values()
    return str(next(task["token"] for task in tasks if not task["done"]))


def test_a_session_that_the_user_has_resumed_does_the_task(batch: Batch) -> None:
    """Signed reports lead from its end to the session of the batch."""
    _failed_first_task(batch)
    [failed] = [report["id"] for report in batch.reports if report["ended_by"] == "max-failures"]
    resumed = command("resume", failed, cwd=batch.repo.path, env=TRUSTED)
    assert resumed.status == 0, resumed.stderr
    again = batch.run()
    assert (again.status, batch.calls) == (0, ["one", "one", "three", "two"]), again.stderr


def test_a_forged_record_lends_its_token_to_no_resumed_session(batch: Batch) -> None:
    """An agent writes the token of a task into the record of its own session, which the user resumes."""
    token, root = _failed_first_task(batch), batch.repo.path
    script = f"test -e $RALPH_PROJECT/calls.go && echo '{PROMISE}'"
    other = run(root, "--max-failures", "1", "--", "sh", "-c", script)
    assert other.directory is not None, other.stderr
    record = other.directory / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"task": token}))
    (root / "calls.go").touch()
    assert command("resume", str(other.report["id"]), cwd=root, env=TRUSTED).status == 0
    again = batch.run()
    assert (again.status, batch.calls) == (0, ["one", "one", "three", "two"]), again.stderr
    assert "no signature proves it" in again.stderr


def test_no_record_decides_what_runs(batch: Batch) -> None:
    """An agent that changes how its session was started changes nothing: the user types the command again."""
    batch.during("exit 1\n")
    assert batch.run("--max-failures", "1").status == 1
    for path in batch.repo.path.glob(".ralph/run/sessions/*/start.json"):
        start = json.loads(path.read_text())
        path.write_text(json.dumps({**start, "command": ["sh", "-c", "touch $RALPH_PROJECT/calls.evil"]}))
    assert command("resume", min(batch.ids), cwd=batch.repo.path).status == 125  # it would ask the user
    batch.during("")
    assert batch.run().status == 0
    assert not (batch.repo.path / "calls.evil").exists()
