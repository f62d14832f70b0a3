"""What ends a loop whose agent has left its worktree, and where the monitor cannot look."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.git_shim import shim_git
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.worktree.leaks.sessions import leaks, session

pytestmark = pytest.mark.usefixtures("ended", "trusted")


OUT = 'cd "$RALPH_PROJECT" && '

EDIT = "echo more >> file.txt"


def test_stop_ends_the_loop(repo: Repo) -> None:
    """After that iteration; what it has left is saved as always."""
    agent = f'echo "$RALPH_ITERATION" > work; [ "$RALPH_ITERATION" = 1 ] || {{ {OUT}{EDIT}; }}'
    result = session(repo, agent, "-n", "5", "--on-leak", "stop")
    assert result.ending == ("leak", 2, 125)
    assert result.report["leaks"] == ["during iteration 2: file.txt (modified)"]
    assert repo.show(f"{result.report['saved']}:work") == b"2\n"


def test_stop_ends_no_loop_that_keeps_to_its_worktree(repo: Repo) -> None:
    """Negative control."""
    result = session(repo, f"{EDIT}; git commit -qam x", "-n", "3", "--on-leak", "stop")
    assert (result.ending, result.report["leaks"]) == (("max-iterations", 3, 0), [])


@pytest.mark.parametrize("by", ["variable", "file"])
def test_stop_by_other_means(repo: Repo, by: str) -> None:
    """Like every option."""
    if by == "file":
        repo.write(".ralph/config.toml", 'on_leak = "stop"\n')
    env = {"RALPH_WRAP_ON_LEAK": "stop"} if by == "variable" else {}
    result = run(repo.path, "-n", "2", "--", "sh", "-c", f"{OUT}{EDIT}", env=env)
    assert result.ending == ("leak", 1, 125)


ASK = (
    f"{sys.executable} -c 'import sys; from pathlib import Path;"
    " from ralph_wrap.state.stop_request import StopMode, ask;"
    " ask(Path(sys.argv[1]), StopMode.AFTER_ITERATION)'"
    ' "$RALPH_PROJECT/.ralph/run/sessions/$RALPH_SESSION_ID"'
)


@pytest.mark.parametrize(
    ("agent", "options", "ending"),
    [
        ("echo '<promise>COMPLETE</promise>'", (), ("promise", 1, 0)),
        ("exit 3", (), ("leak", 1, 125)),
        ("exit 3", ("--max-failures", "1"), ("leak", 1, 125)),
        ("true", ("-n", "1"), ("leak", 1, 125)),
        ("exec sleep 60", ("--max-time", "3s"), ("max-time", 1, 124)),
        ("exec sleep 60", ("--iteration-timeout", "3s"), ("leak", 1, 125)),
        (ASK, (), ("stop", 1, 0)),
        ("kill -TERM $PPID; exec sleep 60", (), ("signal", 1, 143)),
    ],
    ids=["promise", "failure", "failures", "last", "time", "too long", "asked", "signal"],
)
def test_what_else_ends_the_loop(
    repo: Repo, agent: str, options: tuple[str, ...], ending: tuple[str, int, int]
) -> None:
    """Whatever ends it, and with whatever status, the change is in the report."""
    result = session(repo, f"{OUT}{EDIT}; {agent}", "-n", "5", "--on-leak", "stop", *options)
    assert (result.ending, result.report["leaks"]) == (ending, ["during iteration 1: file.txt (modified)"])


@pytest.mark.parametrize("on_leak", ["report", "stop"])
def test_a_change_in_a_pause_is_reported_as_such(repo: Repo, on_leak: str) -> None:
    """No agent has worked then, so it ends no loop either."""
    with Session(repo.path, "-n", "2", "--delay", "1s", "--on-leak", on_leak, "--", "true") as paused:
        paused.wait_for("iteration.ended")
        repo.write("new", "x")
        result = paused.finish()
    assert (result.ending, result.report["leaks"]) == (
        ("max-iterations", 2, 0),
        ["after iteration 1: new (new)"],
    )


def test_a_change_during_setup_is_reported_as_such(repo: Repo) -> None:
    """An installer that sets hooks up for everybody is a usual one."""
    repo.write(".ralph/config.toml", 'setup = "git config core.hooksPath hooks"\n')
    result = run(repo.path, "-n", "1", "--", "true", env={"RALPH_TRUST": "1"})
    assert (result.status, result.report["leaks"]) == (
        0,
        ["during setup: .git/config changed: core.hookspath"],
    )


def test_a_change_by_the_user_is_reported_in_the_same_words(repo: Repo) -> None:
    """The user works in the main checkout while the agent waits for its prompt's end."""
    fifo = repo.path.parent / "fifo"
    os.mkfifo(fifo)
    with Session(repo.path, "-n", "1", "--", "cat", fifo) as waiting:
        waiting.wait_for("agent.started")
        repo.write("file.txt", "two\n")
        fifo.write_text("go on")
        result = waiting.finish()
    assert leaks(result) == ["file.txt (modified)"]


def test_in_the_plain_project_there_is_no_outside(repo: Repo) -> None:
    """Changes there are the agent's work."""
    result = session(repo, EDIT, "--isolation", "off")
    assert (result.status, result.report["leaks"], result.warnings) == (0, None, [])


def test_after_a_fallback_there_is_no_outside(repo: Repo, tmp_path: Path) -> None:
    """Also where it was looked at already."""
    path = shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;')
    result = run(repo.path, "-n", "1", "--", "sh", "-c", EDIT, env={"PATH": path})
    assert (result.status, result.report["leaks"]) == (0, None)
    assert [printed["event"] for printed in result.warnings] == ["isolation.fell_back"]


def test_a_session_inside_another_one_looks_at_the_project(repo: Repo, tmp_path: Path) -> None:
    """The worktree that it was started in is the outer session's business."""
    script = tmp_path / "inner.sh"
    script.write_text(f'echo x > "{repo.path}/new"\necho x > "$OUTER/inside"\n')
    agent = f'OUTER=$RALPH_WORKSPACE {PROGRAM} run -n 1 -- sh "{script}" >&2'
    result = session(repo, agent)
    found = [path.read_text() for path in sorted(repo.path.glob(".ralph/run/sessions/*/report.json"))]
    assert leaks(result) == ["new (new)"]
    assert [text.count("during iteration 1: new (new)") for text in found] == [1, 1]
    assert not any("inside (new)" in text for text in found)


def test_a_session_in_a_linked_worktree_looks_at_the_main_checkout(repo: Repo, tmp_path: Path) -> None:
    """There its own worktree is, so that is where an agent gets that leaves it."""
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "-q", linked)
    repo.git("config", "extensions.worktreeConfig", "true")
    agent = f"{OUT}{EDIT}; git config --worktree core.quotePath off"
    result = run(linked, "-n", "1", "--", "sh", "-c", agent, state=repo.path / ".ralph/run")
    assert leaks(result) == [".git/config.worktree changed: core.quotepath", "file.txt (modified)"]


def test_a_submodule_of_the_main_checkout(repo: Repo, tmp_path: Path) -> None:
    """A file in it, and another commit."""
    other = make_repo(tmp_path / "other")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other.path, "vendor")
    repo.commit("with a submodule")
    result = session(repo, f"{OUT}echo x >> vendor/file.txt")
    assert leaks(result) == ["vendor (modified)"]


def test_before_the_first_commit_there_is_no_worktree(tmp_path: Path) -> None:
    """And so no outside."""
    empty = make_repo(tmp_path / "empty", empty=True)
    result = run(empty.path, "-n", "1", "--", "sh", "-c", "echo x > new")
    assert (result.status, result.report["leaks"]) == (0, None)


def test_a_repository_that_points_elsewhere(repo: Repo) -> None:
    """By ``.git/commondir`` it can be made another one for every git; that comes first."""
    assert leaks(session(repo, f"{OUT}echo /elsewhere > .git/commondir"))[0] == ".git/commondir created"


def test_what_cannot_be_looked_at_is_reported_once(repo: Repo) -> None:
    """The loop goes on, also with stop; what cannot be compared is no change."""
    agent = f"{OUT}: > .git/index.new; mv .git/index .git/kept; echo broken > .git/index"
    result = session(repo, agent, "-n", "3", "--on-leak", "stop")
    assert result.ending == ("max-iterations", 3, 0)
    assert [printed["event"] for printed in result.warnings].count("leak.unknown") == 1


def test_what_changed_while_nothing_could_be_seen_is_reported_later(repo: Repo) -> None:
    """Compared is with the last look that was one."""
    agent = f"""{OUT}case $RALPH_ITERATION in
        1) cp .git/index ../index; echo broken > .git/index; echo x > new ;;
        2) cp ../index .git/index ;;
    esac"""
    result = session(repo, agent, "-n", "2")
    assert result.report["leaks"] == ["during iteration 2: new (new)"]


def test_a_git_that_hangs_does_not_outlive_a_signal(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """While it looks after an iteration; the next steps are done all the same."""
    flag = tmp_path / "flag"
    of_the_project = f'[ -e {flag} ] && [ -z "$GIT_INDEX_FILE" ]'
    hanging_status = f'*"porcelain=v2"*) if {of_the_project}; then echo > {flag}.on; exec sleep 60; fi ;;'
    path = shim_git(tmp_path / "shim", hanging_status)
    agent = script(f"echo x > work; touch {flag}")
    with Session(repo.path, "-n", "2", "--", agent, env={"PATH": path}) as hanging:
        hanging.wait_for("agent.exited")
        eventually((tmp_path / "flag.on").exists, "git at work")
        hanging.process.terminate()
        result = hanging.finish()
    assert (result.status, result.report["saved_paths"]) == (143, ["work"])
    assert "leak.unknown" in result.names
