"""How far a session is, on the last line of a terminal while it runs, and nowhere else."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.agents.output import Usage
from ralph_wrap.config import Settings
from ralph_wrap.loop import IterationContext, OutputListener
from ralph_wrap.loop.progress import Progress
from ralph_wrap.system.log import FORMAT_VARIABLE, Log
from tests.support.agent_script import TRUSTED, logged, result_line
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
OPTIONS = ("-p", "x", "--max-stalls", "0", "--ignore", "off")
AWAY = b"\r\x1b[K"
LINE = re.compile(rb"\r\x1b\[K(ralph-wrap: (?:iterati|setup)[^\r\n]*)")


def _shown(terminal: Terminal) -> list[str]:
    """Return what has stood on the last line, one after the other."""
    return [found.decode() for found in LINE.findall(terminal.screen)]


def test_it_shows_iteration_time_and_commits(repo: Repo) -> None:
    """It is gone in the end: the screen is as it would be without it."""
    agent = "echo one; git commit -q --allow-empty -m mine"
    with Terminal(PROGRAM, "run", "-n", "2", *OPTIONS, *SH, agent, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    shown = [re.sub(r"\d+s", "0s", line) for line in _shown(terminal)]
    assert (set(shown), shown[0], shown[-1]) == (
        {
            "ralph-wrap: iteration 1 of 2, 0s, 0 commits",
            "ralph-wrap: iteration 2 of 2, 0s, 1 commit",
        },
        "ralph-wrap: iteration 1 of 2, 0s, 0 commits",
        "ralph-wrap: iteration 2 of 2, 0s, 1 commit",
    )
    assert not any("iteration 1 of 2" in line for line in terminal.words.splitlines())


def test_it_stands_there_while_the_agent_works(repo: Repo, tmp_path: Path) -> None:
    """Below what was printed last."""
    go = tmp_path / "go"
    agent = f"echo one; until [ -e {go} ]; do sleep 0.02; done"
    with Terminal(PROGRAM, "run", "-n", "1", *OPTIONS, *SH, agent, cwd=repo.path) as terminal:
        line = rb"one\r\n(" + re.escape(AWAY) + rb"ralph-wrap: iteration 1 of 1, \d+s, 0 commits)+$"
        eventually(lambda: re.search(line, terminal.read()), "the line")
        go.touch()
        assert terminal.finish() == 0


def test_it_is_never_within_a_line_of_the_agent(repo: Repo) -> None:
    """Neither stream's; a line that has begun may go on for long."""
    pause = "sleep 0.05\n"
    line = f"printf a$n; {logged('a$n')}{pause}printf b$n >&2; {logged('b$n')}{pause}echo c; {pause}"
    agent = f"for n in 1 2 3; do {line}done"
    with Terminal(PROGRAM, "run", "-n", "1", *OPTIONS, *SH, agent, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert [f"a{n}b{n}c\n" in terminal.words for n in (1, 2, 3)] == [True] * 3
    before = [terminal.screen[: found.start()] for found in LINE.finditer(terminal.screen)]
    left = [re.sub(rb"[^\n]*\r\x1b\[K|\x1b\][^\a]*\a", b"", screen) for screen in before]
    assert len(left) > 3
    assert all(screen.endswith((b"\n", b"commits")) for screen in left)


def test_it_is_no_longer_than_the_terminal_is_wide(repo: Repo) -> None:
    """What has wrapped could not be taken away."""
    with Terminal(
        PROGRAM, "run", "-n", "1", *OPTIONS, "--", "true", cwd=repo.path, size=(24, 20)
    ) as terminal:
        assert terminal.finish() == 0
    assert set(_shown(terminal)) == {"ralph-wrap: iteratio"[:19]}


@pytest.mark.parametrize(
    ("letters", "shown"),
    [
        ("漢" * 30, "漢" * 9),
        ("e\u0301" * 30, "e\u0301" * 19),
        ("a漢" * 30, "a漢" * 6 + "a"),
        ("é" * 7, "é" * 7),
    ],
)
def test_wide_letters_count_twice(tmp_path: Path, letters: str, shown: str) -> None:
    """And those that stand on others not at all."""
    program = (
        f"from ralph_wrap.system.status_line import StatusLine; StatusLine(1, drawn=True).show({letters!r})"
    )
    with Terminal(sys.executable, "-c", program, cwd=tmp_path, size=(24, 20)) as terminal:
        assert terminal.finish() == 0
    assert terminal.screen == AWAY + shown.encode()


def test_it_tells_what_was_spent(repo: Repo, script: Callable[[str], str]) -> None:
    """As far as the agent has reported it when the iteration begins."""
    table = f'[agents.mine]\ncommand = ["{script(result_line("Fine."))}"]\noutput = "claude"\n'
    repo.write(".ralph/config.toml", table)
    command = (PROGRAM, "run", "-a", "mine", "-n", "2", *OPTIONS)
    with Terminal(*command, cwd=repo.path, env=TRUSTED) as terminal:
        assert terminal.finish() == 0
    assert re.search(r"ralph-wrap: iteration 2 of 2, \d+s, \$0.25, 0 commits", "\n".join(_shown(terminal)))


def test_it_stands_there_during_setup(repo: Repo) -> None:
    """Whose output is out of its way, too."""
    repo.write(".ralph/config.toml", f"setup = {json.dumps('printf x; sleep 0.1; echo y')}\n")
    command = (PROGRAM, "run", "-n", "1", *OPTIONS, "--", "true")
    with Terminal(*command, cwd=repo.path, env=TRUSTED) as terminal:
        assert terminal.finish() == 0
    assert _shown(terminal)[0] == "ralph-wrap: setup, 0s"
    assert "\nxy\n" in terminal.words


@pytest.mark.parametrize("under", [("env", "TERM=dumb"), ("env", "-u", "TERM")], ids=["dumb", "unset"])
def test_a_terminal_that_cannot_take_it_away_shows_none(repo: Repo, under: tuple[str, ...]) -> None:
    """Nor anything else that it would not understand."""
    command = (*under, "NO_COLOR=1", PROGRAM, "run", "-n", "1", *OPTIONS, *SH, "printf one")
    with Terminal(*command, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert b"\x1b" not in terminal.screen
    assert "\none\nralph-wrap: session ended" in terminal.words


@pytest.mark.parametrize(("redirection", "shown"), [("| cat", False), ("> out", True), ("> /dev/null", True)])
def test_it_keeps_out_of_pipes(repo: Repo, redirection: str, *, shown: bool) -> None:
    """The reader of a pipe may write on the same terminal; a file gets the agent's bytes alone."""
    under = ("sh", "-c", f'"$@" {redirection}', "sh")
    command = (*under, PROGRAM, "run", "-n", "1", *OPTIONS, *SH, "printf one")
    with Terminal(*command, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert bool(_shown(terminal)) is shown
    if redirection == "> out":
        assert (repo.path / "out").read_bytes() == b"one"


def test_an_agent_that_has_the_terminal_is_left_alone(repo: Repo) -> None:
    """Nothing but its own stands there."""
    agent = "echo one; sleep 0.2; echo two"
    with Terminal(PROGRAM, "run", "-n", "2", "--max-stalls", "0", *SH, agent, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert _shown(terminal) == []
    assert AWAY not in terminal.screen


@pytest.mark.parametrize(("background", "shown"), [("", True), (" &", False)])
def test_a_job_in_the_background_shows_none(repo: Repo, background: str, *, shown: bool) -> None:
    """Another job has the terminal."""
    command = shlex.join((PROGRAM, "run", "-n", "1", *OPTIONS, "--", "true"))
    with Terminal(*shell("> "), cwd=repo.path) as terminal:
        terminal.wait_for("> ")
        terminal.type(f"{command}{background}\n".encode())
        eventually(lambda: b"session ended" in terminal.read(), "its end")
    assert bool(_shown(terminal)) is shown


def test_it_is_gone_before_the_shell_has_its_terminal_back(repo: Repo, tmp_path: Path) -> None:
    """And comes back with the job."""
    go = tmp_path / "go"
    command = shlex.join(
        (PROGRAM, "run", "-n", "1", *OPTIONS, *SH, f"echo one; until [ -e {go} ]; do sleep 0.02; done")
    )
    with Terminal(*shell("the-shell> "), cwd=repo.path) as terminal:
        terminal.wait_for("the-shell> ")
        terminal.type(f"{command}\n".encode())
        terminal.wait_for("one\r\n")
        eventually(lambda: terminal.read().endswith(b"commits"), "the line")
        terminal.type(CTRL_Z)
        terminal.wait_for("the-shell> ", 2)
        stopped = terminal.screen.rpartition(b"commits")[2]
        assert AWAY in stopped.partition(b"Stopped")[0]
        terminal.type(b"fg\n")
        eventually(lambda: terminal.read().endswith(b"commits"), "the line again")
        go.touch()
        eventually(lambda: b"session ended" in terminal.read(), "its end")


def test_its_time_goes_on(repo: Repo) -> None:
    """Also while the agent is silent. A busy machine may miss a second, so no certain one is waited for."""
    with Terminal(PROGRAM, "run", "-n", "1", *OPTIONS, "--", "sleep", "1000", cwd=repo.path) as terminal:
        eventually(
            lambda: len({*re.findall(rb"iteration 1 of 1, (\d+s)", terminal.read())}) > 2, "three times"
        )
        terminal.type(CTRL_C)
        assert terminal.finish() == 130


# Its words


class _Heard(Log):
    """Remembers what is shown."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__(2, terminal=terminal, colour=False)
        self.shown: list[str] = []
        self.rules: list[str] = []

    def rule(self, text: str) -> None:
        self.rules.append(text)

    def progress(self, text: str) -> None:
        self.shown.append(text)


Hear = Callable[..., _Heard]


@pytest.fixture
def hear() -> Iterator[Hear]:
    """Yield a function that puts a log into use, until the end of the test."""
    with ExitStack() as stack:

        def heard(*, terminal: bool = True) -> _Heard:
            log = _Heard(terminal=terminal)
            stack.enter_context(log.in_use())
            return log

        yield heard


class _Spending(OutputListener):
    """Has heard what was spent."""

    def __init__(self, settings: Settings, spent: Usage | None) -> None:
        super().__init__(settings, settings.until)
        self._spent = spent


def _progress(path: Path, clock: list[float], *, most: int = 0, spent: Usage | None = None) -> Progress:
    settings = Settings(project=path, command=("x",), max_iterations=most)
    rest: Any = [None] * (len(IterationContext._fields) - 6)
    context = IterationContext(path, 0, path, path, False, {}, *rest)
    listener = _Spending(settings, spent)
    return Progress(settings, context, listener, shown=True, clock=lambda: clock[0])


@pytest.mark.parametrize(
    ("most", "seconds", "spent", "words"),
    [
        (0, 0.0, None, "iteration 7, 0s"),
        (100, 59.9, None, "iteration 7 of 100, 59s"),
        (0, 60.0, Usage(12345), "iteration 7, 1m00s, 12,345 tokens"),
        (0, 3599.0, Usage(1, 0.0), "iteration 7, 59m59s, $0.00"),
        (0, 3600.0, Usage(1, 1234.567), "iteration 7, 1h00m, $1234.57"),
        (0, 100 * 3600 + 300.0, None, "iteration 7, 100h05m"),
    ],
)
def test_its_words(
    hear: Hear, tmp_path: Path, most: int, seconds: float, spent: Usage | None, words: str
) -> None:
    """A value that is unknown, or does not apply, is left out."""
    clock, log = [0.0], hear()
    progress = _progress(tmp_path, clock, most=most, spent=spent)
    progress.begin(7)
    clock[0] = seconds
    progress.show()
    assert log.shown[-1] == f"ralph-wrap: {words}"


@pytest.mark.parametrize(
    ("passed", "due"), [(0.0, 1.0), (59.5, 60.0), (3599.9, 3600.0), (3600.0, 3660.0), (3719.0, 3720.0)]
)
def test_the_time_of_the_next_drawing(hear: Hear, tmp_path: Path, passed: float, due: float) -> None:
    """A second in the first hour, then a minute."""
    clock = [10.0]
    hear()
    progress = _progress(tmp_path, clock)
    clock[0] += passed
    assert progress.due == 10.0 + due


def test_other_words_have_a_rhythm_of_their_own(hear: Hear, tmp_path: Path) -> None:
    """Nothing is drawn in between."""
    hear()
    progress = _progress(tmp_path, [0.0])
    progress.say("wait")
    assert progress.due == math.inf


def test_a_wait_counts_down(hear: Hear, tmp_path: Path) -> None:
    """A started second counts, and there are none below zero."""
    clock, log = [0.0], hear()
    progress = _progress(tmp_path, clock)
    steps = []
    for clock[0] in (0.0, 10.5, 71.0):
        steps.append(progress.count_down("it starts", 70.0))
    assert log.shown == [f"ralph-wrap: it starts in {left}" for left in ("1m10s", "1m00s", "0s")]
    assert steps == [1.0, 11.5, 72.0]


def test_a_wait_without_a_terminal_takes_one_step(hear: Hear, tmp_path: Path) -> None:
    """To its end."""
    log = hear(terminal=False)
    assert _progress(tmp_path, [0.0]).count_down("it starts", 70.0) == 70.0
    assert log.shown == []


# The rule between iterations


def test_a_rule_stands_between_iterations(hear: Hear, tmp_path: Path) -> None:
    """With what has been; a repetition and the first iteration get none."""
    clock, log = [0.0], hear()
    progress = _progress(tmp_path, clock, most=100, spent=Usage(1, 0.38))
    for number, clock[0] in ((1, 0.0), (2, 12.0), (2, 20.0), (3, 252.0)):
        progress.begin(number)
    assert log.rules == ["iteration 2 of 100 · 12s · $0.38", "iteration 3 of 100 · 4m12s · $0.38"]


def test_a_terminal_has_a_rule_with_the_commits(repo: Repo) -> None:
    """It stays there."""
    agent = "git commit -q --allow-empty -m mine"
    with Terminal(PROGRAM, "run", "-n", "3", *OPTIONS, *SH, agent, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    rules = [line for line in terminal.words.splitlines() if line.startswith("──")]
    assert [re.sub(r"\d+s", "0s", rule) for rule in rules] == [
        "── iteration 2 of 3 · 0s · 1 commit ──",
        "── iteration 3 of 3 · 0s · 2 commits ──",
    ]


def test_a_pipe_has_a_rule_without_the_commits(repo: Repo) -> None:
    """No git runs for it."""
    lines = run(
        repo.path, "-n", "2", *OPTIONS, "--", "true", env={FORMAT_VARIABLE: "text"}
    ).stderr.splitlines()
    (rule,) = [line for line in lines if line.startswith("──")]
    assert re.fullmatch(r"── iteration 2 of 2 · \d+s ──", rule)


def test_json_has_no_rule(repo: Repo) -> None:
    """Each line is an object."""
    assert all(
        line.startswith("{") for line in run(repo.path, "-n", "2", *OPTIONS, "--", "true").stderr.splitlines()
    )


def test_the_pause_before_an_iteration_counts_down(repo: Repo) -> None:
    """On the last line of a terminal, which is gone afterwards."""
    command = (PROGRAM, "run", "-n", "2", "--delay", "2s", *OPTIONS, "--", "true")
    with Terminal(*command, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert b"\r\x1b[Kralph-wrap: iteration 2 starts in 1s" in terminal.screen
    assert "starts in" not in terminal.words


def test_other_words_stand_in_its_place_for_a_while(hear: Hear, tmp_path: Path) -> None:
    """Until they end; in the end there is nothing any more."""
    log = hear()
    progress = _progress(tmp_path, [0.0])
    with progress:
        progress.begin(1)
        progress.say("wait")
        progress.show()
        progress.say("")
    progress.show()
    line = "ralph-wrap: iteration 1, 0s"
    assert log.shown == [line, "wait", "wait", line, ""]


def test_it_is_not_shown_where_there_is_no_terminal(hear: Hear, tmp_path: Path) -> None:
    """No git runs for it, either, which would be an error here."""
    log = hear(terminal=False)
    progress = _progress(tmp_path / "absent", [0.0])
    progress.begin(1)
    progress.show()
    assert log.shown == []
