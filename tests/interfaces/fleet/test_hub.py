"""``ralph-wrap fleet hub``: real git against a real hub, whose origin is a bare repository."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.interfaces.fleet.hub.plan import HubPlan, RefMove, at_risk, plan
from ralph_wrap.interfaces.fleet.hub.repository import NAME
from tests.interfaces.fleet.runs import RUN
from tests.support.git_shim import shim_git
from tests.support.repo import make_repo
from tests.support.sessions import command
from tests.support.submodules import ALLOWED
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interfaces.fleet.hubs import RunningHub

COMMIT = "echo work >> made; git add made; git commit -qm one"
CLAIM = "refs/ralph/claims/0123abcd"
BRANCH = "refs/heads/ralph/0123abcd"
SNAPSHOTS, RESCUED = "refs/ralph/snapshots/0123abcd/", "refs/ralph/rescue/0123abcd/"


def test_only_the_refs_of_sessions_are_taken(hub: RunningHub) -> None:
    """A push to another ref fails as a whole, a wrong password sees nothing, and no file is served."""
    for ref in ("refs/heads/main2", "refs/heads/ralph", "refs/tags/t", "refs/hub/origin/heads/main"):
        refused = hub.push("HEAD:refs/heads/ralph/aaaaaaaa", f"HEAD:{ref}")
        assert refused.returncode != 0, refused
    wrong = hub.push("HEAD:refs/heads/ralph/aaaaaaaa", address=hub.address.replace("secret", "wrong"))
    assert b"401" in wrong.stderr or b"Authentication failed" in wrong.stderr
    files = subprocess.run(
        ["git", "ls-remote", hub.address.replace("project.git", "project.git/../hub.lock")],
        capture_output=True,
        check=False,
    )
    assert files.returncode != 0
    assert hub.push(f"HEAD:{BRANCH}").returncode == 0
    hub.arrives(BRANCH, hub.run.repo.head)
    assert {*hub.run.refs("refs/heads/")} == {"refs/heads/main", BRANCH}


def test_a_burst_of_pushes_becomes_few(hub: RunningHub) -> None:
    """Four sessions push at once, again and again; origin gets a push in an interval, and the newest work."""
    hub.end()
    hub.interval = 5
    hub.start()
    begun, before = time.monotonic(), hub.pushes()
    ends: dict[str, str] = {}
    for _ in range(8):
        hub.run.repo.git("commit", "-q", "--allow-empty", "-m", "one more")
        sessions = [f"refs/heads/ralph/{number:08x}" for number in range(4)]
        ends |= dict.fromkeys(sessions, hub.run.repo.head)
        for process in [hub.begin_push(f"HEAD:{ref}") for ref in sessions]:
            assert process.wait(CAP) == 0
    for ref, oid in ends.items():
        hub.arrives(ref, oid)
    rounds = (time.monotonic() - begun) / hub.interval
    assert 1 <= hub.pushes() - before <= rounds + 1
    assert hub.pushes() - before <= 32 / 2
    assert hub.end() == 0


def test_nothing_is_lost_while_origin_is_away_and_the_hub_is_killed(hub: RunningHub) -> None:
    """What the hub has taken is on its volume; the next hub brings it."""
    away = hub.run.directory / "away.git"
    hub.run.remote.path.rename(away)
    hub.run.repo.git("commit", "-q", "--allow-empty", "-m", "while origin is away")
    assert hub.push(f"HEAD:{BRANCH}").returncode == 0
    hub.end(signal.SIGKILL)
    away.rename(hub.run.remote.path)
    eventually(lambda: not hub.answers(), "the end of the server, too")
    hub.start()
    hub.arrives(BRANCH, hub.run.repo.head)


def test_a_client_sees_that_a_slow_hub_works(hub: RunningHub) -> None:
    """What git says each second while a hook runs reaches the client, which gives up a silent server."""
    hook = hub.directory / NAME / "hooks/post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nsleep 12\n")
    hook.chmod(0o755)
    hub.run.repo.git("config", "http.lowSpeedLimit", "1")
    hub.run.repo.git("config", "http.lowSpeedTime", "3")
    pushed = hub.push(f"HEAD:{BRANCH}")
    assert pushed.returncode == 0, pushed


def test_one_volume_has_one_hub(hub: RunningHub) -> None:
    """The second one says so, and ends."""
    second = command(*hub.words(), cwd=hub.run.directory)
    assert (second.status, "another hub works on" in second.stderr) == (6, True), second.stderr


def test_both_sides_meet_at_the_hub(hub: RunningHub) -> None:
    """What a user pushes to origin comes to the hub; where both have moved a ref, origin wins."""
    repo = hub.run.repo
    assert hub.push(f"HEAD:{BRANCH}", f"HEAD:{CLAIM}").returncode == 0
    hub.arrives(CLAIM, repo.head)
    repo.git("commit", "-q", "--allow-empty", "-m", "of a user")
    users = repo.head
    repo.git("push", "-q", "origin", f"HEAD:{BRANCH}", f"HEAD:refs/ralph/fleet/{RUN}/stop/0123abcd", "main")

    def listed() -> str:
        return repo.git("ls-remote", hub.address)

    for ref in (BRANCH, f"refs/ralph/fleet/{RUN}/stop/0123abcd", "refs/heads/main"):
        eventually(lambda row=f"{users}\t{ref}": row in listed(), f"{ref} at the hub")  # type: ignore[misc]
    away = hub.run.directory / "away.git"
    hub.run.remote.path.rename(away)
    for side in ("session", "machine"):
        repo.git("checkout", "-q", "--detach", users)
        repo.git("commit", "-q", "--allow-empty", "-m", side)
        if side == "session":
            session = repo.head
            assert hub.push(f"HEAD:{BRANCH}").returncode == 0
    repo.git("push", "-q", str(away), f"HEAD:{BRANCH}")
    away.rename(hub.run.remote.path)
    eventually(lambda: f"{repo.head}\t{BRANCH}" in listed(), "the branch of the other machine")
    hub.arrives(f"refs/ralph/rescue/0123abcd/hub-{session[:12]}/heads/ralph/0123abcd", session)


def test_an_empty_origin_takes_nothing_from_the_hub(hub: RunningHub) -> None:
    """A new repository at the address of origin, or a wrong address, has lost the work; the hub has not."""
    assert hub.push(f"HEAD:{BRANCH}").returncode == 0
    hub.arrives(BRANCH, hub.run.repo.head)
    hub.end()
    origin = hub.run.remote.path
    origin.rename(origin.with_name("lost.git"))
    hub.run.repo.git("init", "-q", "--bare", str(origin))
    hub.start()
    eventually(lambda: "origin is empty" in hub.log.read_text(), "the warning")
    assert f"{hub.run.repo.head}\t{BRANCH}" in hub.run.repo.git("ls-remote", hub.address)


def test_an_index_is_done_once_origin_has_its_work(hub: RunningHub) -> None:
    """The worker has the password of the hub alone, and waits for the hub."""
    hub.run.begin(COMMIT)
    credentials = hub.run.directory / "credentials"
    credentials.write_text(f"http://agent:secret%20word@127.0.0.1:{hub.port}\n")
    order = {
        "RALPH_FLEET_REMOTE": f"http://127.0.0.1:{hub.port}/project.git",
        "RALPH_FLEET_GIT_CREDENTIAL": str(credentials),
        "RALPH_FLEET_HUB": "1",
    }
    status, printed = hub.run.work(env=order).ended()
    assert status == 0, printed
    [branch] = hub.run.refs("refs/heads/ralph/")
    assert hub.run.remote.show(f"{branch}:made") == b"work\n"
    assert f"refs/ralph/fleet/{RUN}/output/0" in hub.run.refs()
    eventually(lambda: hub.run.state().get("state") == "done", "the index at origin")


def test_a_hub_forwards_the_work_in_submodules(hub: RunningHub, tmp_path: Path) -> None:
    """It is a ref of the session, and the index is done only once origin has it."""
    library = make_repo(tmp_path / "library")
    hub.run.repo.git(*ALLOWED, "submodule", "--quiet", "add", library.path, "lib")
    hub.run.begin(
        f"git {' '.join(ALLOWED)} submodule --quiet update --init; cd lib;"
        " git commit -q --allow-empty -m inner; echo new > new"
    )
    order = {"RALPH_FLEET_REMOTE": hub.address, "RALPH_FLEET_HUB": "1"}
    status, printed = hub.run.work(env=order).ended()
    assert status == 0, printed
    [snapshot] = [ref for ref in hub.run.refs("refs/ralph/snapshots/") if ref.endswith("/submodules")]
    assert hub.run.remote.show(f"{snapshot}^1:new") == b"new\n"
    assert hub.run.remote.git("log", "-1", "--format=%s", f"{snapshot}^1^1") == "inner"


A, B, C, GONE = "a" * 40, "b" * 40, "c" * 40, "e" * 40


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed", "pushing", "expected"),
    [
        (A, None, None, None, HubPlan([], [RemoteChange(BRANCH, None, A)])),
        (B, A, A, None, HubPlan([], [RemoteChange(BRANCH, A, B)])),
        (None, A, A, None, HubPlan([], [RemoteChange(BRANCH, A, None)])),
        (A, A, A, None, HubPlan([], [])),
        (A, B, A, None, HubPlan([RefMove(BRANCH, A, B, B)], [])),
        (None, B, None, None, HubPlan([RefMove(BRANCH, None, B, B)], [])),
        (A, A, None, None, HubPlan([RefMove(BRANCH, A, A, A)], [])),
        # the answer to a push was lost, and the session has pushed since
        (C, B, A, B, HubPlan([RefMove(BRANCH, C, C, B)], [RemoteChange(BRANCH, B, C)])),
        (C, None, A, GONE, HubPlan([RefMove(BRANCH, C, C, None)], [RemoteChange(BRANCH, None, C)])),
        # another machine has moved it
        (
            C,
            B,
            A,
            None,
            HubPlan(
                [RefMove(BRANCH, C, B, B, f"refs/ralph/rescue/0123abcd/hub-{C[:12]}/heads/ralph/0123abcd")],
                [],
            ),
        ),
    ],
)
def test_the_side_that_has_moved_a_ref_wins(
    ours: str | None, theirs: str | None, agreed: str | None, pushing: str | None, expected: HubPlan
) -> None:
    """And origin, if both have."""
    here, there, base, pushed = ({BRANCH: oid} if oid else {} for oid in (ours, theirs, agreed, pushing))
    assert plan(here, there, base, pushed, GONE) == expected


def test_a_session_whose_claim_origin_has_moved_pushes_nothing_any_more() -> None:
    """The branch at origin is now of the other machine; what the hub has of it stays in a rescue ref."""
    ours = {CLAIM: A, BRANCH: B, f"{SNAPSHOTS}2": B, f"{RESCUED}heads/x": B}
    theirs = {CLAIM: C, BRANCH: A, f"{SNAPSHOTS}1": A}
    agreed = {CLAIM: A, BRANCH: A, f"{SNAPSHOTS}1": A}
    found = plan(ours, theirs, agreed, {}, GONE)
    ref = f"{RESCUED}hub-{B[:12]}"
    assert found.moves == [
        RefMove(BRANCH, B, A, A, f"{ref}/heads/ralph/0123abcd"),
        RefMove(CLAIM, A, C, C),
        RefMove(f"{SNAPSHOTS}1", None, A, A),
        RefMove(f"{SNAPSHOTS}2", B, None, None, f"{ref}/ralph/snapshots/0123abcd/2"),
    ]
    assert found.pushes == [RemoteChange(f"{RESCUED}heads/x", None, B)]


@pytest.mark.parametrize(
    ("claims", "lacking", "kept"),
    [
        ((A, A), {A}, f"refs/hub/kept/{A[:12]}/heads/ralph/0123abcd"),  # a user has deleted the branch
        ((A, None), {A}, f"refs/hub/kept/{A[:12]}/heads/ralph/0123abcd"),  # and the claim, by "drop"
        ((A, A), set(), ""),  # another branch of origin has its commits
        ((A, B), {A}, ""),  # the session goes on on another machine
    ],
)
def test_the_hub_keeps_what_origin_has_deleted(
    claims: tuple[str, str | None], lacking: set[str], kept: str
) -> None:
    """If no other ref of origin has the commits."""
    before, there = ({CLAIM: oid} if oid else {} for oid in claims)
    found = plan({BRANCH: A} | before, there, {BRANCH: A} | before, {}, GONE, lacking)
    assert found.moves[0] == RefMove(BRANCH, A, None, None, kept)
    assert at_risk({BRANCH: A} | before, there, {BRANCH: A} | before) == {A}


def test_work_waits_if_its_claim_moves_after_the_fetch(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine takes the session over just before the push; all other refs arrive."""
    repo, other = hub.run.repo, "refs/heads/ralph/4567cdef"
    first = repo.head
    assert hub.push(f"HEAD:{BRANCH}", f"HEAD:{CLAIM}").returncode == 0
    hub.arrives(CLAIM, first)
    hub.end()
    repo.git("commit", "-q", "--allow-empty", "-m", "of the machine that takes over")
    taken = repo.head
    repo.git("push", "-q", "origin", f"HEAD:{RESCUED}here")
    flag = tmp_path / "flag"
    take = f"env -i $REAL -C {hub.run.remote.path} update-ref {CLAIM} {taken}"
    monkeypatch.setenv(
        "PATH", shim_git(tmp_path / "shim", f'*" push "*) [ ! -e {flag} ] || {{ rm {flag}; {take}; }} ;;')
    )
    hub.interval = 5
    hub.start()
    repo.git("commit", "-q", "--allow-empty", "-m", "of the session")
    flag.touch()
    words = ["git", "-C", str(hub.directory / "project.git"), "fetch", "-q", str(repo.path)]
    refspecs = [f"{repo.head}:{ref}" for ref in (BRANCH, CLAIM, other)]
    subprocess.run([*words, *(f"+{spec}" for spec in refspecs)], check=True)
    hub.arrives(other, repo.head)
    assert (hub.has(BRANCH, first), hub.has(CLAIM, taken)) == (True, True)
