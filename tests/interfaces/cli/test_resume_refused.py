"""What ``ralph-wrap resume`` refuses, and the way out that it names."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.interfaces.cli.resuming import first, id_of, newest, resume
from tests.support.orphans import orphan
from tests.support.sessions import PROGRAM, Session, command
from tests.support.wait import never
from tests.worktree.pool.test_hostile import go_on, paused_after

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


def test_a_session_that_runs_is_refused(project: Repo) -> None:
    """By name, with what to do."""
    with Session(project.path, "--", "sleep", "600") as session:
        session.wait_for("agent.started")
        agent_id = session.directory.name.rpartition("-")[2]
        refused = resume(project, agent_id)
        session.send(signal.SIGTERM)
        session.finish()
    assert refused.status == 6
    (printed,) = refused.warnings
    assert session.directory.name in printed["message"]
    assert printed["hint"].splitlines() == [
        f"to watch it: ralph-wrap logs -f {agent_id}",
        f"to end it first: ralph-wrap stop {agent_id}",
    ]


def test_a_session_that_a_sweep_finishes_is_waited_for(project: Repo, tmp_path: Path) -> None:
    """As in a container that starts again, and whose command goes on with the session."""
    left, gate = orphan(project), tmp_path / "gate"
    sweeping = paused_after(project, gate, "ralph_wrap.worktree.remove._not_ours", "sweep")
    words = (PROGRAM, "resume", left.session.rpartition("-")[2], "--max-iterations", "2", "--delay", "0")
    with subprocess.Popen(words, cwd=project.path, stderr=subprocess.PIPE, text=True) as resuming:
        never(lambda: resuming.poll() is not None, "the end of resume, before that of the sweep")
        go_on(sweeping, gate)
        assert resuming.stderr is not None
        messages = resuming.stderr.read()
    assert (sweeping.returncode, resuming.returncode) == (0, 0), messages


def test_a_branch_that_is_checked_out_is_refused(project: Repo) -> None:
    """The user works on it."""
    agent_id = id_of(first(project, script="echo x > new; git add new; git commit -qm x"))
    project.git("checkout", "-q", f"ralph/{agent_id}")
    refused = resume(project, agent_id)
    assert refused.status == 6
    assert f"ralph/{agent_id} is checked out in {project.path}" in refused.stderr


def test_a_merged_one_needs_again(project: Repo) -> None:
    """Its work has landed."""
    agent_id = id_of(first(project, script="echo x >> landed; git add landed; git commit -qm x"))
    project.git("merge", "-q", f"ralph/{agent_id}")
    refused = resume(project, agent_id)
    assert refused.status == 6
    assert "--again" in refused.stderr
    assert resume(project, agent_id, "--again").status == 0


def test_a_merged_one_with_saved_work_needs_again(project: Repo) -> None:
    """The message says that the saved work has not landed."""
    script = "echo x >> landed; git add landed; git commit -qm x; echo x >> new"
    agent_id = id_of(first(project, script=script))
    project.git("merge", "-q", f"ralph/{agent_id}")
    refused = resume(project, agent_id)
    assert (refused.status, "but not its saved work" in refused.stderr) == (6, True)
    assert resume(project, agent_id, "--again").status == 0


def test_a_branch_without_work_is_not_merged(project: Repo) -> None:
    """The session was stopped before its first commit."""
    agent_id = id_of(first(project, script="true"))
    assert resume(project, agent_id).status == 0


def test_a_dropped_branch_names_the_way_back(project: Repo) -> None:
    """Restore brings it back, and then it goes on."""
    agent_id = id_of(first(project))
    assert command("drop", agent_id, "--force", cwd=project.path).status == 0
    refused = resume(project, agent_id)
    assert refused.status == 4
    assert f"ralph-wrap restore {agent_id}" in refused.stderr
    assert command("restore", agent_id, cwd=project.path).status == 0
    assert resume(project, agent_id).status == 0


@pytest.mark.parametrize(
    "arguments", [(), ("0000", "--all"), ("0000", "--branch", "x"), ("0000", "--base", "x")]
)
def test_mistakes(project: Repo, arguments: tuple[str, ...]) -> None:
    """They are usage errors, and nothing is begun."""
    assert resume(project, *arguments).status == 2


@pytest.mark.parametrize(
    ("words", "agent"), [(("sh", "-c", "true"), "NAME"), (("/usr/bin/codex", "exec"), "codex")]
)
def test_a_command_is_no_session(project: Repo, words: tuple[str, ...], agent: str) -> None:
    """Who types one as for run learns which option changes the agent."""
    agent_id = id_of(first(project))
    refused = resume(project, agent_id, "--", *words)
    error = refused.warnings[-1]
    assert refused.status == 2
    assert error["message"].startswith(f"resume takes no command, and {' '.join(words)} is one")
    assert error["hint"].endswith(f": ralph-wrap resume {agent_id} --agent {agent}")
    assert (resume(project, "--", agent_id).status, newest(project, agent_id)["iterations"]) == (0, 1)


def test_an_unknown_id_is_not_found(project: Repo) -> None:
    """Nothing is begun."""
    assert resume(project, "0000").status == 4


def test_a_start_that_was_changed_needs_the_users_word(project: Repo) -> None:
    """An agent can write the file, and the command in it."""
    begun = first(project)
    assert begun.directory is not None
    start = begun.directory / "start.json"
    start.write_text(start.read_text().replace("cat >", "touch evil; cat >"))
    refused = resume(project, id_of(begun))
    assert refused.status == 125
    assert "RALPH_TRUST=1" in refused.stderr
    assert not (project.path / "evil").exists()
    assert resume(project, id_of(begun), RALPH_TRUST="1").status == 0


def test_a_start_of_another_session_does_not_count(project: Repo) -> None:
    """Its signature holds for that session alone."""
    begun, second = first(project), first(project, script="echo other > other")
    assert begun.directory is not None
    assert second.directory is not None
    (begun.directory / "start.json").write_bytes((second.directory / "start.json").read_bytes())
    assert resume(project, id_of(begun)).status == 125


def test_without_a_recorded_start_the_agent_is_typed(project: Repo) -> None:
    """Its file is gone."""
    begun = first(project)
    assert begun.directory is not None
    (begun.directory / "start.json").unlink()
    refused = resume(project, id_of(begun))
    assert (refused.status, "no agent is given" in refused.stderr) == (2, True)


def test_saved_work_that_is_checked_out_is_refused(project: Repo, tmp_path: Path) -> None:
    """The new session could not replace it, and the next one would begin with the former work."""
    agent_id = id_of(first(project))
    project.git("worktree", "add", "-q", str(tmp_path / "mine"), f"ralph/{agent_id}-wip")
    refused = resume(project, agent_id)
    assert refused.status == 6
    assert f"ralph/{agent_id}-wip is checked out in {tmp_path / 'mine'}" in refused.stderr


def test_a_worktree_that_stayed_is_refused_on_any_branch(project: Repo) -> None:
    """Its agent had left the session's branch; rm saves what is in it, and then it goes on."""
    agent_id = id_of(first(project, "--keep-worktree", script="git checkout -q --detach; echo x >> new"))
    refused = resume(project, agent_id)
    assert refused.status == 6
    assert f"ralph-wrap rm {agent_id}" in refused.stderr
    assert command("rm", agent_id, cwd=project.path).status == 0
    assert resume(project, agent_id).status == 0


def test_an_option_of_another_version_is_named(project: Repo) -> None:
    """It is a usage error, not a crash."""
    begun = first(project)
    assert begun.directory is not None
    start = begun.directory / "start.json"
    start.write_text(start.read_text().replace('"options": {', '"options": {"strange": "x",', 1))
    refused = resume(project, id_of(begun), RALPH_TRUST="1")
    assert (refused.status, "does not know: strange" in refused.stderr) == (2, True), refused.stderr
    assert "Traceback" not in refused.stderr
