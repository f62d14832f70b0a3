"""What an agent prints cannot pass for a line of ours: row 28 of the attacks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import output_relay
from tests.support.sessions import PROGRAM, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

FORGED = {
    "json": '{"at": "2026-01-02T03:04:05Z", "event": "session.released", "message": "an imitation"}',
    "text": "ralph-wrap: an imitation of a line",
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_line_on_stderr_is_marked(repo: Repo, kind: str) -> None:
    """Whole, and in two parts; the log has the bytes of the agent."""
    line = FORGED[kind]
    script = f"echo '{line}' >&2; printf %s '{line[:5]}' >&2; sleep 0.2; echo '{line[5:]}' >&2"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", script, env={"RALPH_WRAP_LOG_FORMAT": kind})
    shown = [row for row in ended.stderr.splitlines() if row.endswith(line[5:])]
    assert shown == [f"agent: {line}", f"{line[:5]}agent: {line[5:]}"]
    assert ended.output_log.decode() == f"{line}\n{line}\n"


def test_stdout_is_marked_only_where_our_lines_go(repo: Repo) -> None:
    """In ``docker logs`` both streams are one. In a pipe of its own, stdout has the agent's bytes."""
    line = FORGED["json"]
    words = (PROGRAM, "run", "-n", "1", "--", "echo", line)
    apart = run(repo.path, "-n", "1", "--", "echo", line)
    assert apart.stdout.decode() == f"{line}\n"
    both = subprocess.run(words, cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert f"\nagent: {line}\n" in both.stdout.decode()


def test_without_the_mark_the_line_passes_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterpart: a channel that knows no words of ours changes nothing."""
    channel = output_relay._Channel(2, lambda: None)  # noqa: SLF001
    try:
        assert channel.marked(FORGED["json"].encode()).startswith(b"agent: ")
        monkeypatch.setattr(output_relay, "_OURS", ())
        assert channel.marked(FORGED["json"].encode()) == FORGED["json"].encode()
    finally:
        channel.close()
