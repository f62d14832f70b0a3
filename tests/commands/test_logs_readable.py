"""``ralph-wrap logs`` of an agent with a machine-readable stream: what a person saw while it worked."""

from __future__ import annotations

import json
import os
import subprocess
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents.output import lines
from ralph_wrap.commands import logs
from ralph_wrap.state import project
from tests.support.agent_script import TRUSTED, logged, print_line, result_line, says
from tests.support.sessions import PROGRAM, Session
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("ended")


CALL = {"id": "n", "content": [{"type": "tool_use", "name": "Bash", "input": {"command": "make\nmake"}}]}
STREAM = says("Looking.") + print_line({"type": "assistant", "message": CALL}) + result_line("Fine.")
SEEN = b"Looking.\n> Bash: make \xe2\x80\xa6\n"


def _printed(repo: Repo, to: Path, name: str, *, raw: bool = False, events: bool = False) -> bytes:
    """Return what is printed of a session's log."""
    found_project = project.find_project(repo.path, os.environ)
    with to.open("wb") as file:
        logs.logs(found_project, name, events=events, follow=False, descriptor=file.fileno(), raw=raw)
    return to.read_bytes()


def test_what_was_seen_is_printed(repo: Repo, mine: Callable[..., Result], tmp_path: Path) -> None:
    """Of all iterations: words, and a line for each use of a tool."""
    result = mine(STREAM, "-n", "2", "--max-stalls", "0")
    assert _printed(repo, tmp_path / "to", result.report["id"]) == result.stdout == SEEN * 2


def test_raw_is_the_stream_as_it_came(repo: Repo, mine: Callable[..., Result], tmp_path: Path) -> None:
    """Byte for byte, whatever is not of it."""
    result = mine(STREAM + r"printf 'noise\377\0'", "-n", "1")
    assert _printed(repo, tmp_path / "to", result.report["id"], raw=True) == result.output_log
    assert result.output_log.endswith(b"noise\xff\0")


def test_raw_shows_it_readable_afterwards(repo: Repo, mine: Callable[..., Result], tmp_path: Path) -> None:
    """How a session was watched makes no difference."""
    result = mine(STREAM, "-n", "1", "--raw")
    assert _printed(repo, tmp_path / "to", result.report["id"]) == SEEN


def test_errors_between_the_lines_are_printed_as_they_are(
    repo: Repo, mine: Callable[..., Result], tmp_path: Path
) -> None:
    """The log has both streams; half a line at the end is there, too."""
    steps = says("One."), logged("One"), "printf 'odd\\377\\n' >&2\n", logged("odd"), says("Two.")
    result = mine("".join(steps) + "printf '{\"type\":'", "-n", "1")
    assert _printed(repo, tmp_path / "to", result.report["id"]) == b'One.\nodd\xff\nTwo.\n{"type":\n'


def test_words_do_nothing_to_a_terminal(repo: Repo, mine: Callable[..., Result], tmp_path: Path) -> None:
    """As while it worked."""
    result = mine(says("\x1b[2Jred\x07"), "-n", "1")
    assert _printed(repo, tmp_path / "to", result.report["id"]) == result.stdout == b"\\x1b[2Jred\\x07\n"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: None, id="control"),
        pytest.param(lambda line: line | {"output": None}, id="not named"),
        pytest.param(lambda line: line | {"output": "text"}, id="text"),
        pytest.param(lambda line: line | {"output": "..shape"}, id="no format"),
        pytest.param(lambda line: line | {"output": ["claude"]}, id="no text"),
        pytest.param(lambda line: {"event": "agent.started"}, id="no format named"),  # noqa: ARG005
        pytest.param(lambda line: {"event": "x", "y": '"event": "agent.started"'}, id="another"),  # noqa: ARG005
    ],
)
def test_of_an_unknown_format_the_bytes_are_printed(
    repo: Repo, mine: Callable[..., Result], tmp_path: Path, change: Callable[[object], object]
) -> None:
    """An agent can write into the event log; a format that is not ours loads no code."""
    result = mine(STREAM, "-n", "1")
    assert result.directory is not None
    events = [
        change(event) or event if event["event"] == "agent.started" else event for event in result.events
    ]
    (result.directory / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    shown = _printed(repo, tmp_path / "to", result.report["id"])
    assert shown == (SEEN if change(result.events[0]) is None else result.output_log)


@pytest.mark.parametrize("what", ["absent", "symlink", "fifo", "garbage"])
def test_without_an_event_log_the_bytes_are_printed(
    repo: Repo, mine: Callable[..., Result], tmp_path: Path, what: str
) -> None:
    """A symlink is not followed, and a FIFO hangs no reader."""
    result = mine(STREAM, "-n", "1")
    assert result.directory is not None
    path = result.directory / "events.jsonl"
    path.rename(tmp_path / "events")
    if what == "symlink":
        path.symlink_to(tmp_path / "events")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "garbage":
        path.write_bytes(b'{"event": "agent.started"\xff[\n' * 3)
    assert _printed(repo, tmp_path / "to", result.report["id"]) == result.output_log


def test_events_are_never_changed(repo: Repo, mine: Callable[..., Result], tmp_path: Path) -> None:
    """They are for programs."""
    result = mine(STREAM, "-n", "1")
    shown = _printed(repo, tmp_path / "to", result.report["id"], events=True)
    assert [json.loads(line) for line in shown.splitlines()] == result.events


@pytest.mark.parametrize("limited", [True, False])
def test_a_line_of_fifty_megabytes_takes_no_memory(
    repo: Repo, mine: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """It is counted, and what follows is shown. Without the limit, the line is in memory as a whole."""
    if not limited:
        monkeypatch.setattr(lines, "LONGEST", 1 << 30)
    result = mine(says("One."), "-n", "1")
    assert result.directory is not None
    size = 50_000_000 - len(result.output_log)
    with (result.directory / "output.log").open("ab") as log:
        log.write(b'{"type":"assistant","x":"')
        log.truncate(50_000_000)
    with (result.directory / "output.log").open("ab") as log:
        log.write(b"\nafter\n")
    tracemalloc.start()
    try:
        shown = _printed(repo, tmp_path / "to", result.report["id"])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (shown == b"One.\n> a line of %d bytes, see output.log\nafter\n" % size) is limited
    assert (most < 8_000_000, most > 50_000_000) == (limited, not limited)


def test_it_is_followed_line_by_line(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """Though it is followed before the agent has started, and setup has printed something then."""
    go, more = tmp_path / "go", tmp_path / "more"
    wait = "until [ -e {} ]; do sleep 0.02; done\n"
    agent = script(says("One.") + wait.format(more) + says("Two.") + result_line("Fine."))
    setup = f"echo setting up; {wait.format(go).strip()}"
    content = f'setup = {json.dumps(setup)}\n[agents.mine]\ncommand = ["{agent}"]\noutput = "claude"\n'
    repo.write(".ralph/config.toml", content)
    with Session(repo.path, "-a", "mine", "-p", "x", "-n", "1", env=TRUSTED) as session:
        session.wait_for("setup.started")
        name = session.directory.name
        with subprocess.Popen(
            (PROGRAM, "logs", "-f", name), cwd=repo.path, stdout=subprocess.PIPE
        ) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"setting up\n"
            go.touch()
            assert follower.stdout.readline() == b"One.\n"
            more.touch()
            stdout, _ = follower.communicate(timeout=CAP)
        session.finish()
    assert (follower.returncode, stdout) == (0, b"Two.\n")
