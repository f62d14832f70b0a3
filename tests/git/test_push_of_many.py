"""A push of many refs, each with a lease: real git against a bare repository."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment, list_refs
from ralph_wrap.git.remote import RemoteChange, is_refused, leased_push, push_error, pushed_deletion
from tests.support.git_shim import shim_git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

COUNT = 60
FLEET = "refs/ralph/fleet/r1/"


@pytest.fixture
def git(repo: Repo, tmp_path: Path) -> Git:
    """Return git at the project; it notes the words of each push."""
    words = f'*" push "*) echo "$#" >> {tmp_path}/words ;;'
    path = shim_git(tmp_path / "shim", words)
    return Git(repo.path, git_environment({**os.environ, "PATH": path}))


def _pushed(git: Git, changes: list[RemoteChange]) -> str:
    """Push; return the error, empty for none."""
    with leased_push(git, "origin", changes) as running:
        running.ended(60)
        completed = running.wait()
    assert not list_refs(git, "refs/ralph-push/")
    return push_error(completed) if completed.status else ""


@pytest.fixture
def pushed_refs(git: Git, repo: Repo, remote: Repo) -> dict[str, str]:
    """Return refs that a push of many has made on the remote."""
    made = {f"{FLEET}index/{number}": repo.head for number in range(COUNT)}
    assert _pushed(git, [RemoteChange(ref, None, oid) for ref, oid in made.items()]) == ""
    assert list_refs(git._replace(cwd=remote.path, git_dir=remote.path), FLEET) == made
    return made


def _refs_of(remote: Repo) -> dict[str, str]:
    rows = remote.git("for-each-ref", "--format=%(refname) %(objectname)", FLEET)
    return dict(row.split(" ", 1) for row in rows.splitlines())


def test_the_refs_of_a_killed_push_go(git: Git, repo: Repo, pushed_refs: dict[str, str]) -> None:
    """A push on a later day deletes them; those of a push that may run stay."""
    now = int(time.time())
    left, running = (f"refs/ralph-push/{begun}-aa/after/heads/x" for begun in (now - 90000, now))
    for ref in (left, running):
        repo.git("update-ref", ref, repo.head)
    changes = [RemoteChange(ref, oid, None) for ref, oid in pushed_refs.items()]
    with leased_push(git, "origin", changes) as push:
        assert push.wait(60).status == 0
    assert [*list_refs(git, "refs/ralph-push/")] == [running]


def test_many_refs_move_and_go(
    git: Git, repo: Repo, remote: Repo, pushed_refs: dict[str, str], tmp_path: Path
) -> None:
    """Git compares each refspec with each ref of the remote, so one pattern names those that move."""
    before, after = repo.head, repo.commit("next")
    changes = [RemoteChange(ref, before, after) for ref in pushed_refs]
    changes[3:4] = [RemoteChange(changes[3].ref, before, None), RemoteChange(f"{FLEET}spec", None, after)]
    assert _pushed(git, changes) == ""
    assert _refs_of(remote) == {change.ref: change.after for change in changes if change.after}
    assert max(map(int, (tmp_path / "words").read_text().split())) < COUNT


def test_a_lease_of_many_holds(git: Git, repo: Repo, remote: Repo, pushed_refs: dict[str, str]) -> None:
    """Another program has moved one ref, made another, and deleted a third one: nothing is pushed."""
    before, after = repo.head, repo.commit("next")
    moved, made, gone = (f"{FLEET}index/{number}" for number in (1, COUNT, 2))
    remote.git("update-ref", moved, f"{before}^{{tree}}")
    remote.git("update-ref", made, before)
    remote.git("update-ref", "-d", gone)
    found = _refs_of(remote)
    changes = [RemoteChange(ref, before, after) for ref in pushed_refs] + [RemoteChange(made, None, after)]
    assert "rejected" in _pushed(git, changes)
    assert _refs_of(remote) == found


def test_refs_that_the_user_tracks_give_no_lease(
    git: Git, repo: Repo, remote: Repo, pushed_refs: dict[str, str]
) -> None:
    """The leases are those of the changes, and not what the user has fetched."""
    repo.git("config", "--add", "remote.origin.fetch", "+refs/ralph/*:refs/theirs/*")
    repo.git("fetch", "-q", "origin")
    before, after = repo.head, repo.commit("next")
    assert "stale info" in _pushed(git, [RemoteChange(ref, after, after) for ref in pushed_refs])
    assert set(_refs_of(remote).values()) == {before}
    assert _pushed(git, [RemoteChange(ref, before, after) for ref in pushed_refs]) == ""


def test_refs_below_a_prefix_go_if_they_are_as_known(
    git: Git, repo: Repo, remote: Repo, pushed_refs: dict[str, str]
) -> None:
    """Another program has made one more: all stay. Refs elsewhere stay, too."""
    remote.git("update-ref", f"{FLEET}spec", repo.head)
    remote.git("update-ref", f"{FLEET}index/new", repo.head)
    for refs, is_gone in ((pushed_refs, False), (pushed_refs | {f"{FLEET}index/new": repo.head}, True)):
        with pushed_deletion(git, "origin", f"{FLEET}index/", refs) as running:
            running.ended(60)
            assert (running.wait().status == 0) == is_gone
        assert (f"{FLEET}index/0" not in _refs_of(remote)) == is_gone
    assert [*_refs_of(remote)] == [f"{FLEET}spec"]


@pytest.mark.parametrize(
    ("hook", "receive_pack", "refused"),
    [
        ("exit 1", "git-receive-pack", True),
        ("exit 0", 'git receive-pack --stateless-rpc --advertise-refs "$@"; exec cat > /dev/null', False),
    ],
    ids=["refused", "the connection ends"],
)
def test_a_refusal_is_an_answer(
    git: Git,
    repo: Repo,
    remote: Repo,
    script: Callable[[str], str],
    hook: str,
    receive_pack: str,
    *,
    refused: bool,
) -> None:
    """A push whose connection ends may succeed later; one that the server refuses may not."""
    path = remote.path / "hooks/update"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{hook}\n")
    path.chmod(0o755)
    if receive_pack != "git-receive-pack":
        repo.git("config", "--global", "remote.origin.receivepack", script(receive_pack))
    changes = [RemoteChange(f"refs/heads/ralph/{name}", None, repo.head) for name in "ab"]
    with leased_push(git, "origin", changes) as running:
        completed = running.wait(60)
    assert completed.status != 0
    assert is_refused(completed) == refused
