"""The ids of agents and sessions."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.state import ids

AGENT_IDS = st.integers(min_value=0, max_value=0xFFFF).map("{:04x}".format)
NOW = datetime(2026, 7, 14, 9, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "agent", "session"),
    [
        ("3f9a", True, False),
        ("20260714T093005Z-3f9a", False, True),
        ("3F9A", False, False),
        ("3f9", False, False),
        ("3f9a0", False, False),
        ("3f9a\n", False, False),
        ("\u0663f9a", False, False),
        ("", False, False),
        ("20260714T093005Z-3f9a\n", False, False),
        ("20260714T093005Z-3f9", False, False),
        ("20260714t093005z-3f9a", False, False),
        ("\u0662\u0660\u0662\u06660714T093005Z-3f9a", False, False),
        ("20260714T093005Z", False, False),
        ("warm-20260714T093005Z-3f9a", False, False),
    ],
)
def test_a_text_is_an_id_or_none(text: str, agent: bool, session: bool) -> None:
    """Only lower case, only ASCII digits, and nothing around it."""
    assert (ids.is_agent_id(text), ids.is_session_id(text)) == (agent, session)
    assert (ids.agent_id_of(text) is not None) == (agent or session)


@given(AGENT_IDS, st.datetimes(min_value=datetime(1000, 1, 1)))  # noqa: DTZ001 -- hypothesis adds none
def test_a_session_id_tells_what_it_was_made_of(agent_id: str, moment: datetime) -> None:
    """The agent, and the second."""
    now = moment.replace(tzinfo=UTC)
    session = ids.session_id(agent_id, now.timestamp())
    assert ids.is_session_id(session)
    assert ids.agent_id_of(session) == agent_id
    assert ids.started(session) == now.replace(microsecond=0)


@given(AGENT_IDS)
def test_an_agent_id_names_itself(agent_id: str) -> None:
    """A user may type either of the two ids."""
    assert ids.agent_id_of(agent_id) == agent_id


def test_a_session_id_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts in different time zones share a project."""
    with monkeypatch.context() as environ:
        environ.setenv("TZ", "HERE-5")
        time.tzset()
        assert ids.session_id("3f9a", NOW.timestamp()) == "20260714T093005Z-3f9a"
    time.tzset()


@pytest.mark.parametrize(
    "session", ["20261314T093005Z-3f9a", "20260714T253005Z-3f9a", "00000714T093005Z-3f9a"]
)
def test_a_time_that_does_not_exist_is_an_error(session: str) -> None:
    """The form alone does not say that there is such a day."""
    assert ids.is_session_id(session)
    with pytest.raises(ValueError, match=r"must be in|out of range"):
        ids.started(session)


def test_agent_ids_are_read_from_refs() -> None:
    """From branches, saved work and hidden refs, whatever else is there."""
    names = [
        *["refs/heads/ralph/a3f2", "refs/heads/ralph/09be-wip", "refs/heads/ralph/feature"],
        *["refs/heads/ralph/12345", "refs/heads/ralph/ABCD", "refs/heads/ralph/12g4", "refs/heads/ralph/abc"],
        *["refs/ralph/snapshots/0000/1", "refs/ralph/dropped/ffff", "refs/ralph/dropped/eeee-wip"],
        "refs/heads/3f9a.x",
    ]
    listing = "".join(f"{name}\n" for name in names).encode()
    assert ids.agent_ids_in(listing) == {"a3f2", "09be", "0000", "ffff", "eeee"}
    assert ids.agent_ids_in(b"") == set()
