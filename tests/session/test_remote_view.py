"""What a session knows of its remote: which push comes next, and what a failed push means."""

from __future__ import annotations

import time

import pytest

from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.session.remote.schedule import Schedule
from ralph_wrap.session.remote.view import ClaimState, RemoteView

BRANCH, WIP = "refs/heads/ralph/3f9a", "refs/heads/ralph/3f9a-wip"
CLAIM = "refs/ralph/claims/3f9a"
SESSION = "20260714T093005Z-3f9a"
RESCUE = f"refs/ralph/rescue/3f9a/{SESSION}/"
SNAPSHOT = "refs/ralph/snapshots/3f9a/"


def view(**refs: str) -> RemoteView:
    """Return a view of a remote with some refs."""
    named = {"branch": BRANCH, "wip": WIP, "one": f"{SNAPSHOT}1", "kept": f"{SNAPSHOT}commit-1"}
    return RemoteView(
        "3f9a", SESSION, "ralph/3f9a", "claim0", {named[name]: oid for name, oid in refs.items()}
    )


def test_a_push_brings_what_differs() -> None:
    """The newest snapshot replaces the one before; the claim is last, with its lease."""
    seen = view(branch="a", one="s1")
    local = {BRANCH: "b", f"{SNAPSHOT}1": "s1", f"{SNAPSHOT}2": "s2", f"{SNAPSHOT}commit-1": "c"}
    wanted = seen.wanted(local, f"{SNAPSHOT}2")
    assert seen.changes(wanted, "claim1") == [
        RemoteChange(BRANCH, "a", "b"),
        RemoteChange(f"{SNAPSHOT}1", "s1", None),
        RemoteChange(f"{SNAPSHOT}2", None, "s2"),
        RemoteChange(f"{SNAPSHOT}commit-1", None, "c"),
        RemoteChange(CLAIM, "claim0", "claim1"),
    ]
    seen.acknowledge()
    assert seen.changes(wanted, "claim2") == [RemoteChange(CLAIM, "claim1", "claim2")]


def test_saved_work_leaves_only_if_a_snapshot_has_it() -> None:
    """A session has put it back, so its next machine must not do so again."""
    assert view(wip="w").changes({f"{SNAPSHOT}commit-1": "w"}, "claim1")[:1] == [RemoteChange(WIP, "w", None)]
    assert view(wip="w").changes({BRANCH: "b"}, "claim1") == [
        RemoteChange(BRANCH, None, "b"),
        RemoteChange(CLAIM, "claim0", "claim1"),
    ]


def test_a_claim_deletes_no_snapshot() -> None:
    """The remote may have the only copy of what another machine has pushed."""
    seen = view(one="s1", kept="c")
    assert seen.changes({}, "claim1") == [RemoteChange(CLAIM, "claim0", "claim1")]
    seen.acknowledge()
    wanted = seen.wanted({f"{SNAPSHOT}commit-2": "c"}, None)
    assert RemoteChange(f"{SNAPSHOT}1", "s1", None) not in seen.changes(wanted, "claim2")


def test_a_session_deletes_the_snapshots_that_it_has_pushed() -> None:
    """Even if the snapshot has moved here since."""
    seen = view()
    seen.changes(seen.wanted({f"{SNAPSHOT}1": "s1"}, f"{SNAPSHOT}1"), "claim1")
    seen.acknowledge()
    wanted = seen.wanted({f"{SNAPSHOT}1": "s2"}, None)
    assert RemoteChange(f"{SNAPSHOT}1", "s1", None) in seen.changes(wanted, "claim2")


@pytest.mark.parametrize(
    ("claim", "standing", "held"),
    [
        ("claim1", ClaimState.OURS, "claim1"),
        ("claim0", ClaimState.OURS, "claim0"),
        ("other", ClaimState.LOST, "claim0"),
    ],
    ids=["the answer was lost", "the push failed", "another machine was faster"],
)
def test_a_failed_push_has_three_meanings(claim: str, standing: ClaimState, held: str) -> None:
    """The claim that the remote has tells which."""
    seen = view(branch="a")
    seen.changes({BRANCH: "b"}, "claim1")
    assert seen.in_doubt
    found = {CLAIM: claim, BRANCH: "b" if claim == "claim1" else "a"}
    assert (seen.compare(found), seen.held, seen.in_doubt) == (standing, held, False)
    assert seen.diverted == []


def test_a_push_that_arrives_late_is_known_again() -> None:
    """It arrived after the look that followed it: no other machine has moved the refs."""
    seen = view(branch="a")
    before = {CLAIM: "claim0", BRANCH: "a"}
    for claim, commit in (("claim1", "b"), ("claim2", "c")):
        seen.changes({BRANCH: commit}, claim)
        assert seen.compare(before) is ClaimState.OURS
        assert not seen.was_taken
    seen.claim_alone("claim3")
    assert seen.compare({CLAIM: "claim1", BRANCH: "b"}) is ClaimState.OURS
    assert (seen.held, seen.was_taken, seen.diverted) == ("claim1", True, [])
    assert seen.changes({BRANCH: "c"}, "claim4") == [
        RemoteChange(BRANCH, "b", "c"),
        RemoteChange(CLAIM, "claim1", "claim4"),
    ]
    assert seen.compare({CLAIM: "claim2", BRANCH: "b"}) is ClaimState.LOST  # its lease has gone


@pytest.mark.parametrize(
    ("refused", "lost", "standing"),
    [(2000, 1, ClaimState.OURS), (0, 1000, ClaimState.OURS), (0, 1001, ClaimState.LOST)],
    ids=["refusals are forgotten", "the oldest of a thousand is known", "and not of more"],
)
def test_a_session_remembers_the_pushes_without_an_answer(
    refused: int, lost: int, standing: ClaimState
) -> None:
    """A remote that refuses each push for days does not let the memory grow."""
    seen = view(branch="a")
    before = {CLAIM: "claim0", BRANCH: "a"}
    for number in range(lost + refused):
        seen.changes({BRANCH: "b"}, f"late{number}")
        seen.note_failure(is_refused=number >= lost)
        assert seen.compare(before) is ClaimState.OURS
    assert seen.compare({CLAIM: "late0", BRANCH: "b"}) is standing


def test_without_its_claim_a_session_pushes_beside_the_others() -> None:
    """It touches no ref of the session that goes on, and pushes nothing if all is there."""
    seen = view(branch="a")
    seen.changes({BRANCH: "b"}, "claim1")
    seen.compare({CLAIM: "other", BRANCH: "theirs"})
    assert seen.changes({BRANCH: "b"}, "claim2") == [RemoteChange(f"{RESCUE}heads/ralph/3f9a", None, "b")]
    seen.acknowledge()
    assert (seen.changes({BRANCH: "b"}, "claim3"), seen.in_doubt) == ([], False)
    assert seen.missing({BRANCH: "b", WIP: "w"}) == [WIP]


def test_a_branch_that_another_program_has_moved_stays() -> None:
    """Its own commits go beside it; the claim is still the session's."""
    seen = view(branch="a")
    seen.changes({BRANCH: "b"}, "claim1")
    assert seen.compare({CLAIM: "claim0", BRANCH: "theirs"}) is ClaimState.OURS
    assert seen.diverted == [BRANCH]
    assert seen.changes({BRANCH: "b"}, "claim2") == [
        RemoteChange(f"{RESCUE}heads/ralph/3f9a", None, "b"),
        RemoteChange(CLAIM, "claim0", "claim2"),
    ]


def test_a_server_gets_more_time_after_each_silence() -> None:
    """A slow one looks silent. A push that the remote takes soon brings the first limit back."""
    schedule = Schedule(1.0)
    first = schedule.silence
    schedule.begin()
    schedule.fail("refused", look=True)
    assert schedule.silence == first
    schedule.silence = 0.01
    schedule.begin()
    time.sleep(schedule.silence)
    schedule.fail("too slow", look=True)
    assert schedule.silence == 0.02
    schedule.begin()
    schedule.take_push()
    assert schedule.silence == first
