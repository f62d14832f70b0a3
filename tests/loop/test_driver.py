"""The loop's own ends: a number of iterations, failures or stalls, or a promise."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import Session, run

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

SH = ("--", "sh", "-c")
CHANGE = 'echo "$RALPH_ITERATION" > counted'
PROMISE = "<promise>COMPLETE</promise>"


def _pauses(result: Result) -> list[float]:
    """Return the seconds from the end of each iteration to the start of the next one."""
    at = [
        (event["event"], datetime.fromisoformat(event["at"]))
        for event in result.events
        if event["event"] in {"iteration.started", "iteration.ended"}
    ]
    return [
        (after[1] - before[1]).total_seconds()
        for before, after in pairwise(at)
        if before[0] == "iteration.ended"
    ]


def test_the_loop_ends_after_as_many_iterations_as_asked(repo: Repo) -> None:
    """--max-iterations 3 runs the agent three times, in one and the same worktree."""
    result = run(repo.path, "-n", "3", *SH, 'echo "$RALPH_ITERATION" >> all; cat all')
    assert result.ending == ("max-iterations", 3, 0)
    assert result.stdout == b"1\n1\n2\n1\n2\n3\n"


def test_the_events_tell_the_whole_life_in_order(repo: Repo) -> None:
    """One iteration that leaves a file makes exactly these events."""
    result = run(repo.path, "-n", "1", *SH, CHANGE)
    assert result.names == [
        "session.registered",
        "ignore_rule.added",
        "workspace.created",
        "session.started",
        "iteration.started",
        "agent.started",
        "agent.exited",
        "iteration.ended",
        "work.saved",
        "worktree.removed",
        "session.released",
    ]
    assert {event["agent_id"] for event in result.events} == {result.report["id"]}
    assert {event["session_id"] for event in result.events} == {result.report["session"]}


def test_no_limit_is_ended_by_a_promise_alone(repo: Repo) -> None:
    """With every limit at 0, what never changes goes on until the promise comes."""
    agent = f'[ "$RALPH_ITERATION" -lt 7 ] || echo "{PROMISE}"'
    result = run(repo.path, "-n", "0", "--max-failures", "0", "--max-stalls", "0", *SH, agent)
    assert result.ending == ("promise", 7, 0)


def test_a_hundred_iterations_are_the_default_limit(repo: Repo) -> None:
    """A user who sets no limit gets one."""
    result = run(repo.path, "--max-stalls", "0", "--isolation", "off", "--", "true")
    assert result.ending == ("max-iterations", 100, 0)


def test_failing_iterations_end_the_loop_with_longer_and_longer_waits(repo: Repo) -> None:
    """--max-failures 3 waits at least 1 s and 2 s, and hands on the last iteration's status."""
    result = run(repo.path, "--max-failures", "3", *SH, 'exit "$((40 + RALPH_ITERATION))"')
    assert result.ending == ("max-failures", 3, 43)
    first, second = _pauses(result)
    assert first >= 1.0
    assert second >= 2.0


def test_a_failing_iteration_is_logged_with_the_wait_for_the_next(repo: Repo) -> None:
    """One line each; those that succeed or keep their promise are not worth one."""
    agent = 'case $RALPH_ITERATION in 3) exit 0;; 5) echo "$KEPT"; exit 0;; esac; exit 7'
    env = {"KEPT": PROMISE}
    result = run(repo.path, "--delay", "500ms", "--max-stalls", "0", *SH, agent, env=env)
    assert result.ending == ("promise", 5, 0)
    assert [printed["message"] for printed in result.narration if printed["event"] == "iteration.ended"] == [
        "iteration 1 failed with status 7, next in 1.5s",
        "iteration 2 failed with status 7, next in 2.5s",
        "iteration 4 failed with status 7, next in 1.5s",
    ]


def test_the_last_failing_iteration_has_no_next(repo: Repo) -> None:
    """It is logged all the same."""
    result = run(repo.path, "-n", "1", "--", "false")
    assert [printed["message"] for printed in result.narration if printed["event"] == "iteration.ended"] == [
        "iteration 1 failed with status 1"
    ]


def test_a_success_forgives_earlier_failures(repo: Repo) -> None:
    """Failures count in a row only."""
    agent = 'echo "$RALPH_ITERATION" > counted; [ "$RALPH_ITERATION" = 2 ]'
    result = run(repo.path, "--max-failures", "2", "-n", "3", *SH, agent)
    assert result.ending == ("max-iterations", 3, 1)


def test_iterations_that_change_nothing_end_the_loop(repo: Repo) -> None:
    """--max-stalls 3: one iteration that changes something, and three that do not."""
    agent = '[ "$RALPH_ITERATION" -gt 1 ] || echo changed > file.txt'
    result = run(repo.path, "--max-stalls", "3", *SH, agent)
    assert result.ending == ("max-stalls", 4, 0)


@pytest.mark.parametrize(
    ("agent", "stalls"),
    [
        pytest.param("true", True, id="nothing"),
        pytest.param("touch ignored/file", True, id="touching an ignored file"),
        pytest.param('echo "$RALPH_ITERATION" > ignored/file', True, id="writing an ignored file"),
        pytest.param("touch file.txt", True, id="touching a file"),
        pytest.param("echo one > file.txt", True, id="rewriting what was committed"),
        pytest.param("echo same > new", True, id="rewriting what is untracked"),
        pytest.param("git commit -q --allow-empty -m empty", False, id="an empty commit"),
        pytest.param('echo "$RALPH_ITERATION" > new', False, id="another untracked content"),
        pytest.param('echo "$RALPH_ITERATION" > file.txt', False, id="another tracked content"),
        pytest.param('chmod "$((RALPH_ITERATION % 2 * 100 + 644))" file.txt', False, id="another mode"),
        pytest.param('ln -sfn "to-$RALPH_ITERATION" link', False, id="another symlink"),
        pytest.param('rm -f turn-*; : > "turn-$RALPH_ITERATION"', False, id="another name"),
    ],
)
def test_what_counts_as_a_change(repo: Repo, agent: str, *, stalls: bool) -> None:
    """An iteration has changed something if HEAD or a file that is not ignored differs afterwards."""
    repo.write(".gitignore", "ignored/\n")
    repo.commit("rules")
    # The first iteration counts as a change in each case: what follows is compared with it.
    whole = f"mkdir -p ignored; [ -e start ] || echo > start; {agent}"
    result = run(repo.path, "--max-stalls", "2", "-n", "5", *SH, whole)
    assert result.ending == (("max-stalls", 3, 0) if stalls else ("max-iterations", 5, 0))


def test_stalls_are_seen_without_a_repository(repo: Repo) -> None:
    """In a plain directory files are compared directly."""
    plain = repo.path.parent / "plain"
    plain.mkdir()
    agent = '[ "$RALPH_ITERATION" -gt 2 ] || echo "$RALPH_ITERATION" > file'
    result = run(plain, "--max-stalls", "2", *SH, agent)
    assert result.ending == ("max-stalls", 4, 0)


@pytest.mark.parametrize(
    ("until", "printed", "kept"),
    [
        pytest.param(None, f"{PROMISE}\\n", True, id="default"),
        pytest.param(None, f"words\\n {PROMISE}\\t\\r\\nwords\\n", True, id="white space around it"),
        pytest.param(None, f"words\\n{PROMISE}", True, id="last line without a newline"),
        pytest.param(None, f"I will print {PROMISE}\\n", False, id="inside a longer line"),
        pytest.param(None, f"{PROMISE} yet.\\n", False, id="something behind it"),
        pytest.param(None, "<promise>\\nCOMPLETE</promise>\\n", False, id="on two lines"),
        pytest.param("All done.", "All done.\\n", True, id="own text"),
        pytest.param("All done.", f"{PROMISE}\\n", False, id="default text, own one wanted"),
        pytest.param(" fertig für heute ", "fertig für heute\\n", True, id="own text with white space"),
        pytest.param("", "\\n\\n", False, id="empty is never found"),
    ],
)
def test_what_keeps_the_promise(repo: Repo, until: str | None, printed: str, *, kept: bool) -> None:
    """A line of its own in the agent's stdout; ``test_promise.py`` has every form."""
    options = () if until is None else ("--until", until)
    result = run(repo.path, "-n", "2", *options, *SH, f"printf '{printed}'")
    assert result.ending == (("promise", 1, 0) if kept else ("max-iterations", 2, 0))


def test_a_promise_on_stderr_is_none(repo: Repo) -> None:
    """An agent's prompt or tool output there may hold the text."""
    result = run(repo.path, "-n", "1", *SH, f"echo '{PROMISE}' >&2")
    assert result.ending == ("max-iterations", 1, 0)


def test_half_a_promise_is_not_completed_by_the_next_iteration(repo: Repo) -> None:
    """Each iteration answers for itself."""
    agent = f"[ $RALPH_ITERATION = 1 ] && printf '{PROMISE[:9]}' || printf '{PROMISE[9:]}'"
    result = run(repo.path, "-n", "2", *SH, agent)
    assert result.ending == ("max-iterations", 2, 0)


def test_a_promise_of_an_agent_that_failed_does_not_count(repo: Repo) -> None:
    """The loop goes on, and a warning says why."""
    agent = f"echo '{PROMISE}'; [ $RALPH_ITERATION = 2 ] || exit 7"
    result = run(repo.path, *SH, agent)
    assert result.ending == ("promise", 2, 0)
    assert [warning["message"] for warning in result.warnings if warning["event"] == "promise.ignored"] == [
        "the agent kept its promise and failed with status 7: that does not end the loop"
    ]


def test_an_agent_that_shows_its_prompt_keeps_no_promise(repo: Repo) -> None:
    """The prompt of the quickstart has the promise on a line of its own."""
    prompt = f"Do the first open task.\nIf no task is open, answer with this line alone:\n{PROMISE}\n"
    agent = f"echo user:; cat; echo agent:; [ $RALPH_ITERATION -lt 2 ] || echo '{PROMISE}'"
    result = run(repo.path, "-n", "3", "-p", prompt, *SH, agent)
    assert result.ending == ("promise", 2, 0)


def test_a_promise_is_found_in_the_middle_of_much_output(repo: Repo) -> None:
    """Pieces of 64 KiB do not hide a line that lies across two of them."""
    agent = f"head -c 65530 /dev/zero | tr '\\0' x; echo; echo '{PROMISE}'; head -c 200000 /dev/zero"
    result = run(repo.path, "-n", "2", *SH, agent)
    assert result.ending == ("promise", 1, 0)


def test_the_delay_lies_between_iterations(repo: Repo) -> None:
    """Three iterations have two pauses of at least --delay; there is none before or after."""
    result = run(repo.path, "-n", "3", "--delay", "400ms", *SH, CHANGE)
    assert result.ending == ("max-iterations", 3, 0)
    pauses = _pauses(result)
    assert len(pauses) == 2
    assert min(pauses) >= 0.4


def test_a_long_delay_does_not_follow_the_last_iteration(repo: Repo) -> None:
    """A session that is to wait an hour between two iterations ends at once after its only one."""
    with Session(repo.path, "-n", "1", "--delay", "1h", "--", "true") as session:
        assert session.finish().ending == ("max-iterations", 1, 0)
