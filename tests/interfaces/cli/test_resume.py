"""``ralph-wrap resume``: a session goes on where an earlier one ended."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.interfaces.cli.resuming import COUNT, first, id_of, newest, resume
from tests.support.sessions import PROGRAM, Session, command, read_events, run
from tests.support.trees import on_disk
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo


def test_it_goes_on_with_everything_where_it_was(project: Repo) -> None:
    """Same id, branch, agent and saved work; the work is saved on top of what was there."""
    begun = first(project)
    agent_id = id_of(begun)
    assert resume(project, agent_id).status == 0
    report = newest(project, agent_id)
    assert report["session"] > begun.report["session"]
    assert (report["branch"], report["ended_by"], report["iterations"]) == (
        f"ralph/{agent_id}",
        "max-iterations",
        1,
    )
    assert project.git("show", f"ralph/{agent_id}-wip:new") == "x\nx"


def test_the_former_saved_work_stays_as_a_snapshot(project: Repo) -> None:
    """It is replaced by what the new session has saved."""
    agent_id = id_of(first(project))
    saved = project.git("rev-parse", f"ralph/{agent_id}-wip")
    resume(project, agent_id)
    assert project.git("rev-parse", f"ralph/{agent_id}-wip") != saved
    names = project.git("for-each-ref", "--format=%(objectname)", f"refs/ralph/snapshots/{agent_id}/")
    assert saved in names.split()


def test_an_option_that_is_typed_beats_the_recorded_one(project: Repo) -> None:
    """The others stay."""
    agent_id = id_of(first(project, "-p", "do it"))
    assert resume(project, agent_id, "-n", "2").status == 0
    assert newest(project, agent_id)["iterations"] == 2
    assert (project.path / "prompt-2").read_text() == "do it"
    assert resume(project, agent_id, "-p", "do something else").status == 0
    assert (project.path / "prompt-1").read_text() == "do something else"


def test_a_variable_counts_as_recorded(project: Repo) -> None:
    """The next shell may not have it."""
    begun = run(
        project.path,
        *("-n", "1", "--", "sh", "-c", COUNT),
        env={"RALPH_WRAP_PROMPT": "from the environment"},
    )
    (project.path / "prompt-1").unlink()
    assert resume(project, id_of(begun)).status == 0
    assert (project.path / "prompt-1").read_text() == "from the environment"


def test_a_prompt_file_is_found_again(project: Repo) -> None:
    """It was named from where the user stood, and is read anew."""
    prompt = project.path / "sub" / "task.md"
    prompt.write_text("first")
    agent_id = id_of(first(project, "-f", "task.md", cwd=project.path / "sub"))
    prompt.write_text("second")
    assert resume(project, agent_id).status == 0
    assert (project.path / "prompt-1").read_text() == "second"


def test_the_agent_works_in_the_same_sub_directory(project: Repo) -> None:
    """Wherever the user stands now."""
    begun = first(project, cwd=project.path / "sub")
    assert resume(project, id_of(begun)).status == 0
    places = (project.path / "places").read_text().splitlines()
    assert [directory.rpartition("/")[2] for directory in places] == ["sub", "sub"]


def test_a_message_is_said_before_the_prompt_once(project: Repo) -> None:
    """In the first iteration only."""
    agent_id = id_of(first(project, "-p", "do it"))
    assert resume(project, agent_id, "-m", "use tabs", "-n", "2").status == 0
    assert (project.path / "prompt-1").read_text() == "use tabs\n\ndo it"
    assert (project.path / "prompt-2").read_text() == "do it"


def test_a_branch_of_the_user_goes_on_too(project: Repo) -> None:
    """The session had created or continued it."""
    begun = first(project, "--branch", "feature/login", script="echo x >> new; git add new; git commit -qm x")
    assert resume(project, id_of(begun)).status == 0
    assert newest(project, id_of(begun))["branch"] == "feature/login"


def test_a_killed_session_is_sweptfirst(project: Repo) -> None:
    """Then it goes on with what the sweep has saved."""
    script = 'echo work > new; [ "$RALPH_ITERATION" = 1 ] && [ ! -e again ] && sleep 600; true'
    with Session(project.path, "-n", "1", "--", "sh", "-c", script) as session:
        session.wait_for("agent.started")
        tree = eventually(lambda: next(project.path.glob(".ralph/worktrees/*/new"), None), "the work")
        session.send(signal.SIGKILL)
        session.process.wait()
        agent_id = session.directory.name.rpartition("-")[2]
    assert tree.exists()
    (project.path / "again").touch()
    resumed = resume(project, agent_id, "--max-time", "1s")
    assert newest(project, agent_id)["session"] != session.directory.name, resumed.stderr
    assert project.git("show", f"ralph/{agent_id}-wip:new") == "work"


def test_all_goes_on_with_those_that_were_interrupted(project: Repo) -> None:
    """Not with one that has kept its promise; each runs in the background and ends as it began."""
    kept = first(project, script="echo '<promise>COMPLETE</promise>'")
    limited = [first(project), first(project)]
    resumed = resume(project, "--all")
    assert resumed.status == 0, resumed.stderr
    assert {*resumed.stdout.decode().split()} == {id_of(result) for result in limited}

    def both_ended() -> bool:
        return all(
            newest(project, id_of(result))["session"] != result.report["session"] for result in limited
        )

    eventually(both_ended, "both sessions to end")
    assert newest(project, id_of(kept))["session"] == kept.report["session"]
    eventually(lambda: not [*project.path.glob(".ralph/worktrees/*")], "no worktree to be left")


def test_without_anything_interrupted_all_does_nothing(project: Repo) -> None:
    """It is no error."""
    assert resume(project, "--all").status == 0


def test_a_resume_that_fails_can_be_typed_again(project: Repo) -> None:
    """Its agent never started; the earlier session still says how."""
    agent_id = id_of(first(project))
    failed = resume(project, agent_id, "--sparse", "sub", PATH="/nowhere")
    assert failed.status != 0
    assert resume(project, agent_id).status == 0
    assert project.git("show", f"ralph/{agent_id}-wip:new") == "x\nx"


def test_the_base_is_that_of_the_first_session(project: Repo) -> None:
    """Review and diff show the whole branch, not only the part since the resume."""
    base = project.git("rev-parse", "HEAD")
    script = 'echo "$RALPH_SESSION_ID" >> new; git add new; git commit -qm "one more"'
    agent_id = id_of(first(project, script=script))
    assert resume(project, agent_id).status == 0
    project.git("checkout", "-q", "--orphan", "elsewhere")  # so that no merge base is found
    project.git("commit", "-q", "--allow-empty", "-m", "unrelated")
    listed = json.loads(command("review", "--json", cwd=project.path).stdout)["data"]
    assert [entry["base"] for entry in listed if entry["id"] == agent_id] == [base]


def test_a_worktree_with_restored_work_is_dirty_for_the_agent(project: Repo) -> None:
    """The agent sees its own files before it writes."""
    agent_id = id_of(
        first(project, script='git status --porcelain >> "$RALPH_PROJECT/prompt-seen"; echo x >> new')
    )
    resume(project, agent_id)
    assert (project.path / "prompt-seen").read_text() == "?? new\n"
    events = read_events(max(project.path.glob(f".ralph/run/sessions/*-{agent_id}")))
    assert [event["event"] for event in events].count("work.restored") == 1


def test_a_session_without_isolation_goes_on_in_the_project(project: Repo) -> None:
    """It has no branch."""
    begun = first(project, "--isolation", "off")
    assert resume(project, id_of(begun)).status == 0
    assert (project.path / "new").read_text() == "x\nx\n"
    assert on_disk(project.path)[b"new"][1] == b"x\nx\n"


def test_a_background_session_goes_on_in_the_background(project: Repo) -> None:
    """Its worktree stays until rm."""
    spawned = command("spawn", "-n", "1", "--", "sh", "-c", COUNT, cwd=project.path)
    agent_id = spawned.stdout.decode().strip()

    def ended() -> bool:
        return bool([*project.path.glob(f".ralph/run/sessions/*-{agent_id}/record.json")])

    eventually(ended, "the session to end")
    assert f"ralph-wrap rm {agent_id}" in resume(project, agent_id).stderr
    assert command("rm", agent_id, cwd=project.path).status == 0
    resumed = resume(project, agent_id)
    assert (resumed.status, resumed.stdout.decode().strip()) == (0, agent_id)
    eventually(lambda: newest(project, agent_id)["kept"], "the session to end with its worktree")


def test_the_way_to_the_restored_work_is_short(project: Repo) -> None:
    """Relative to where the user stands, as in the banner: the line fits into a terminal."""
    resumed = resume(project, id_of(first(project)), "--log-format", "text")
    (line,) = [line for line in resumed.stderr.splitlines() if "is back" in line]
    assert line.startswith("ralph-wrap: saved work is back in .ralph/worktrees/")
    assert len(line) <= 80


def test_ps_shows_a_session_that_goes_on_once(project: Repo) -> None:
    """The earlier one has kept nothing: the later one works in its directory."""
    script = f'{PROGRAM} ps -C "$RALPH_PROJECT" --json > "$RALPH_PROJECT/prompt-ps"; echo x >> new'
    agent_id = id_of(first(project, script=script))
    assert resume(project, agent_id).status == 0
    listed = json.loads((project.path / "prompt-ps").read_text())["data"]
    assert [entry["session"] for entry in listed] == [newest(project, agent_id)["session"]]


def test_ps_shows_the_session_that_keeps_the_worktree(project: Repo) -> None:
    """The earlier session had the same directory."""
    agent_id = id_of(first(project))
    assert resume(project, agent_id, "--keep-worktree").status == 0
    listed = json.loads(command("ps", "--json", cwd=project.path).stdout)["data"]
    assert [entry["session"] for entry in listed] == [newest(project, agent_id)["session"]]
    assert command("rm", agent_id, cwd=project.path).status == 0
    assert [*project.path.glob(".ralph/worktrees/*")] == []


def test_a_branch_that_begins_anew_has_no_commit_of_saved_work(project: Repo) -> None:
    """The agent was on an unborn branch, and the user has deleted the session's branch."""
    base = project.git("rev-parse", "HEAD")
    script = "git checkout -q --orphan other; echo x >> new"
    agent_id = id_of(first(project, script=script))
    project.git("branch", "-qD", f"ralph/{agent_id}")
    assert resume(project, agent_id, "-n", "1").status == 0
    assert project.git("rev-parse", f"ralph/{agent_id}") == base
    assert project.git("show", f"ralph/{agent_id}-wip:new") == "x\nx"


def test_one_that_cannot_start_does_not_stop_the_others(project: Repo) -> None:
    """The first of them was changed by an agent; the second goes on."""
    begun, second = first(project), first(project)
    assert begun.directory is not None
    start = begun.directory / "start.json"
    start.write_text(start.read_text().replace("cat >", "touch evil; cat >"))
    resumed = resume(project, "--all")
    assert (resumed.status, resumed.stdout.decode().split()) == (125, [id_of(second)])
    assert id_of(begun) in resumed.stderr

    def ended() -> bool:
        return bool(newest(project, id_of(second))["session"] != second.report["session"])

    eventually(ended, "the session to end")
    eventually(lambda: not [*project.path.glob(".ralph/worktrees/*")], "no worktree to be left")


def test_a_detached_head_is_warned_about(project: Repo) -> None:
    """New commits would not be on the branch, as those of the earlier session."""
    agent_id = id_of(first(project, script="git checkout -q --detach; git commit -q --allow-empty -m x"))
    resumed = resume(project, agent_id)
    assert f"a commit that ralph/{agent_id} does not have" in resumed.stderr
