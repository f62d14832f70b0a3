"""Until when the usage limit of an account holds, as sessions tell each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ralph_wrap.loop.usage_limit import AgentAccount
from tests.support.wait import eventually

NOW = 1_800_000_000.0
DAY = 86400.0
KEY = "sk-very-secret-0123456789"
ENVIRON = {"HOME": "/home/me", "ANTHROPIC_API_KEY": KEY, "RALPH_ITERATION": "3", "TERM": "xterm"}


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    """Return where accounts are shared; it is not there yet."""
    return tmp_path / "limits"


def _account(limits: Path, agent: str = "claude", **environ: str) -> AgentAccount:
    return AgentAccount(limits, agent, {**ENVIRON, **environ})


def _share(limits: Path, until: float = NOW + 60) -> AgentAccount:
    account = _account(limits)
    account.refuse(until, NOW)
    return account


def test_a_discovery_is_shared(limits: Path) -> None:
    """And is over when its time has come."""
    _share(limits)
    other = _account(limits, RALPH_ITERATION="9", TERM="dumb")
    assert [other.refused_until(NOW + later) for later in (0, 59, 60, 61)] == [NOW + 60, NOW + 60, 0, 0]


@pytest.mark.parametrize(
    ("agent", "environ"),
    [
        *[("codex", {}), ("claude", {"ANTHROPIC_API_KEY": "another"}), ("claude", {"ANTHROPIC_API_KEY": ""})],
        *[("claude", {"CLAUDE_CODE_OAUTH_TOKEN": "x"}), ("claude", {"ANTHROPIC_BASE_URL": "http://x"})],
        *[("claude", {"HOME": "/home/you"}), ("claude", {"CLAUDE_CONFIG_DIR": "/x"}), ("", {})],
    ],
)
def test_others_are_not_held_back(limits: Path, agent: str, environ: dict[str, str]) -> None:
    """Another agent, or another account of the same one."""
    _share(limits)
    assert _account(limits, agent, **environ).refused_until(NOW) == 0


def test_nothing_of_a_key_is_written(limits: Path) -> None:
    """Neither in the name nor in the file; a few digits could be those of many keys."""
    _share(limits)
    (path,) = limits.iterdir()
    assert len(path.stem.removeprefix("claude-")) == 8
    assert json.loads(path.read_bytes()) == {"version": 1, "until": NOW + 60}


BAD = {
    "nothing": b"",
    "half": b'{"version": 1, "un',
    "a list": b"[]",
    "a text": b'{"version": 1, "until": "soon"}',
    "no time": b'{"version": 1}',
    "newer": b'{"version": 2, "until": 1800000060}',
    "past": b'{"version": 1, "until": 1799999999}',
    "too far away": b'{"version": 1, "until": 1800086401}',
    "endless": b'{"version": 1, "until": Infinity}',
    "no number": b'{"version": 1, "until": NaN}',
    "huge": b'{"version": 1, "until": 1' + b"0" * 400 + b"}",
    "long": b" " * 5000 + b'{"version": 1, "until": 1800000060}',
    "deep": b"[" * 3000,
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_times_that_are_not_believed(limits: Path, content: bytes) -> None:
    """It makes no session wait, and a session that learns the real time replaces it."""
    path = _account(limits).path
    limits.mkdir()
    path.write_bytes(content)
    assert _account(limits).refused_until(NOW) == 0
    _share(limits)
    assert _account(limits).refused_until(NOW) == NOW + 60


def test_a_file_that_is_right_is_believed(limits: Path) -> None:
    """Negative control: up to a day."""
    path = _account(limits).path
    limits.mkdir()
    path.write_bytes(b'{"version": 1, "until": 1800086400}')
    assert _account(limits).refused_until(NOW) == NOW + DAY


def test_the_later_time_counts(limits: Path) -> None:
    """Of two sessions whose services named different ones."""
    _share(limits, NOW + 600)
    early = _share(limits, NOW + 60)
    assert [early.refused_until(NOW), _account(limits).refused_until(NOW)] == [NOW + 600] * 2


@pytest.mark.parametrize("until", [NOW + 60, NOW + 600])
def test_removing_the_file_ends_the_waiting(limits: Path, until: float) -> None:
    """Of the session that wrote it, and of one whose service named the same time."""
    one, other = _share(limits, until), _share(limits, until)
    assert str(one.path) in one.hint["hint"]
    one.path.unlink()
    assert (one.refused_until(NOW), other.refused_until(NOW), one.hint) == (0, 0, {})


def test_a_symlink_is_not_followed(limits: Path, tmp_path: Path) -> None:
    """An agent can put one there; a session that was refused waits all the same."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    limits.symlink_to(elsewhere)
    account = _account(limits)
    with pytest.raises(OSError, match="symlink"):
        account.refuse(NOW + 60, NOW)
    assert list(elsewhere.iterdir()) == []
    assert account.refused_until(NOW) == NOW + 60


@pytest.mark.parametrize("set_back", [0.0, 7200.0], ids=["right", "set back"])
@pytest.mark.parametrize("is_own", [True, False], ids=["own", "shared"])
def test_a_guessed_wait_is_over_whatever_the_clock_says(
    limits: Path, set_back: float, *, is_own: bool
) -> None:
    """The service has named no time, so half a minute is half a minute, in each session."""
    one = _account(limits)
    one.refuse(NOW + 0.3, NOW, is_stated=False)
    waiting = one if is_own else _account(limits)
    now = NOW - set_back
    assert now < waiting.refused_until(now) <= now + 0.3
    eventually(lambda: not waiting.refused_until(now), "the end of the wait")
    assert now - 5 < waiting.refused_until(now, 5.0) <= now


def test_a_time_that_a_service_has_named_is_a_time(limits: Path) -> None:
    """Negative control: it is a time of day, by the clock that is right now."""
    account = _share(limits, NOW + 60)
    assert [each.refused_until(NOW - 7200) for each in (account, _account(limits))] == [NOW + 60] * 2


def test_what_cannot_be_shared_holds_for_oneself(limits: Path) -> None:
    """A full disk, say; here there is no directory to make it in."""
    account = _account(limits / "absent")
    with pytest.raises(OSError, match="absent"):
        account.refuse(NOW + 60, NOW)
    assert (account.refused_until(NOW), account.refused_until(NOW + 60)) == (NOW + 60, 0)
