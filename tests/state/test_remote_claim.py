"""What a claim of another machine may say."""

from __future__ import annotations

import json

import pytest

from ralph_wrap.config.parsers import SLOWEST_BEAT
from ralph_wrap.state.remote_claim import RemoteClaim, decode

ID = "0123abcd"
CLAIM = RemoteClaim(ID, f"20260714T093005Z-{ID}", f"ralph/{ID}", "0" * 40)


@pytest.mark.parametrize(("claimed", "believed"), [(30, 30), (0.2, 0.2), (86400, 600), (float("inf"), 600)])
def test_a_beat_is_at_most_what_a_session_can_have(claimed: float, believed: float) -> None:
    """Other machines wait for three beats until they take a session over: a forged one is three days."""
    assert SLOWEST_BEAT == 600
    assert decode(CLAIM.next(beat=claimed).encode(), ID).beat == believed


@pytest.mark.parametrize("claimed", [0, -1, float("nan"), "30", True, None])
def test_a_claim_without_a_beat_is_damaged(claimed: object) -> None:
    """No number of seconds says when its session is dead."""
    forged = json.loads(CLAIM.encode()) | {"beat": claimed}
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(forged).encode(), ID)


def test_a_claim_without_its_newest_work_is_damaged() -> None:
    """Nobody knows then whether saved work on the remote is older than a snapshot."""
    forged = json.loads(CLAIM.encode())
    del forged["work"]
    with pytest.raises(ValueError, match="work"):
        decode(json.dumps(forged).encode(), ID)


START = {"options": {"max_iterations": "3"}, "command": ["./agent.sh"], "directory": "."}


@pytest.mark.parametrize(
    "wrong",
    [
        {"options": []},
        {"options": {"prompt": 3}},
        {"options": {"prompt": "a\0b"}},
        {"command": "./agent.sh"},
        {"command": [None]},
        {"command": ["a\0b"]},
        {"directory": 1},
        {"directory": "\0"},
    ],
)
def test_a_start_that_no_command_line_has_is_damaged(wrong: dict[str, object]) -> None:
    """Another machine would start the agent with it; the right one is believed."""
    claim = json.loads(CLAIM.encode())
    found = decode(json.dumps(claim | {"start": START}).encode(), ID).start
    assert found is not None
    assert found.to_dict() == START | {"command": ("./agent.sh",)}
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(claim | {"start": START | wrong}).encode(), ID)


@pytest.mark.parametrize("field", ["cost_usd", "earlier_cost_usd"])
@pytest.mark.parametrize("claimed", [-1, float("nan"), float("inf"), 10**400, "3", True, ""])
def test_a_cost_that_cannot_be_is_damaged(field: str, claimed: object) -> None:
    """Another machine would count it against the limit of the session."""
    forged = json.loads(CLAIM.encode()) | {field: claimed}
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(forged).encode(), ID)


@pytest.mark.parametrize(
    ("earlier", "own", "total"), [(0.0, None, None), (0.0, 0.0, 0.0), (0.5, None, 0.5), (0.5, 0.25, 0.75)]
)
def test_a_claim_knows_what_all_its_sessions_have_cost(
    earlier: float, own: float | None, total: float | None
) -> None:
    """That of the session that has it, and those before; nothing if no agent has reported a cost."""
    assert CLAIM._replace(earlier_cost_usd=earlier, cost_usd=own).total_cost == total
