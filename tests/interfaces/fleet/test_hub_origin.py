"""A hub whose origin loses refs, goes back to a backup, or refuses some of them."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.fleet.hub.refusals import PushAnswer
from ralph_wrap.system.process import CompletedCommand
from tests.interfaces.fleet.runs import RUN
from tests.support.git_servers import http_server
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.interfaces.fleet.hubs import RunningHub

FIRST, SECOND, THIRD = (f"refs/heads/ralph/{number:08x}" for number in range(3))
SNAPSHOT = "refs/ralph/snapshots/00000000/1"


def test_a_restored_origin_gets_everything_again(hub: RunningHub) -> None:
    """Origin goes back to a backup, with older refs and without others; the hub deletes and moves nothing."""
    repo, origin = hub.run.repo, hub.run.remote.path
    backup = origin.with_name("backup.git")
    assert hub.push(f"HEAD:{FIRST}").returncode == 0
    hub.arrives(FIRST, repo.head)
    repo.git("push", "-q", "origin", f"HEAD:{THIRD}")
    shutil.copytree(origin, backup)
    repo.git("push", "-q", "origin", f":{THIRD}")
    repo.git("commit", "-q", "--allow-empty", "-m", "after the backup")
    assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}", f"HEAD:{SNAPSHOT}").returncode == 0
    hub.arrives(SNAPSHOT, repo.head)
    assert hub.end() == 0
    shutil.rmtree(origin)
    backup.rename(origin)
    hub.start()
    for ref in (FIRST, SECOND, SNAPSHOT):
        hub.arrives(ref, repo.head)
    assert "has gone back" in hub.log.read_text()
    assert THIRD in repo.git("ls-remote", hub.address), "what origin alone has, the hub takes over"


def test_a_restored_hub_moves_nothing_back_at_origin(hub: RunningHub) -> None:
    """Its volume goes back to a backup: then origin has the newer work, and the hub follows."""
    repo, backup = hub.run.repo, hub.directory.with_name("backup")
    assert hub.push(f"HEAD:{FIRST}").returncode == 0
    hub.arrives(FIRST, repo.head)
    assert hub.end() == 0
    shutil.copytree(hub.directory, backup)
    hub.start()
    repo.git("commit", "-q", "--allow-empty", "-m", "after the backup")
    assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}").returncode == 0
    hub.arrives(SECOND, repo.head)
    assert hub.end() == 0
    shutil.rmtree(hub.directory)
    backup.rename(hub.directory)
    hub.start()
    eventually(lambda: SECOND in repo.git("ls-remote", hub.address), "what origin has")
    assert hub.push(f"HEAD:{THIRD}").returncode == 0
    hub.arrives(THIRD, repo.head)
    assert (hub.has(FIRST, repo.head), hub.has(SECOND, repo.head)) == (True, True)
    assert "has gone back" not in hub.log.read_text()


def test_a_restored_origin_keeps_what_came_to_it_since(hub: RunningHub) -> None:
    """Another machine pushes to the restored origin before the hub; the hub keeps these commits at origin."""
    repo, origin = hub.run.repo, hub.run.remote.path
    backup = origin.with_name("backup.git")
    assert hub.push(f"HEAD:{FIRST}").returncode == 0
    hub.arrives(FIRST, repo.head)
    shutil.copytree(origin, backup)
    repo.git("commit", "-q", "--allow-empty", "-m", "after the backup")
    assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}").returncode == 0
    hub.arrives(SECOND, repo.head)
    assert hub.end() == 0
    shutil.rmtree(origin)
    backup.rename(origin)
    repo.git("commit", "-q", "--allow-empty", "-m", "of another machine")
    repo.git("push", "-q", "origin", f"HEAD:{FIRST}")
    hub.start()
    rescue = f"refs/ralph/rescue/00000000/hub-{repo.head[:12]}/heads/ralph/00000000"
    hub.arrives(rescue, repo.head)
    hub.arrives(FIRST, repo.git("rev-parse", "HEAD~").strip())
    assert [*hub.run.refs("refs/ralph/rescue/")] == [rescue], "the older commits need no ref"


def test_a_lost_answer_of_origin_is_no_backup(hub: RunningHub) -> None:
    """Origin takes a push, and its process dies; what a user deletes there afterwards stays deleted."""
    repo = hub.run.repo
    assert hub.push(f"HEAD:{FIRST}").returncode == 0
    hub.arrives(FIRST, repo.head)
    hook = hub.run.remote.path / "hooks/post-receive"
    died = hub.run.directory / "died"
    hook.write_text(f"#!/bin/sh\ntest -e {died} || {{ : > {died}; kill -9 $PPID; }}\n")
    assert hub.push(f"HEAD:{SECOND}").returncode == 0
    hub.arrives(SECOND, repo.head)
    eventually(died.exists, "the death of origin's process")
    repo.git("push", "-q", "origin", f":{FIRST}")
    assert hub.push(f"HEAD:{THIRD}").returncode == 0
    hub.arrives(THIRD, repo.head)
    assert hub.end() == 0
    assert ("has gone back" in hub.log.read_text(), FIRST in hub.run.refs()) == (False, False)


def test_the_hub_keeps_what_a_user_deletes_at_origin(hub: RunningHub) -> None:
    """It follows, and has a ref for the commits that origin lacks then; no ref comes back to origin."""
    repo = hub.run.repo
    merged = repo.head
    repo.git("commit", "-q", "--allow-empty", "-m", "only on two branches")
    assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}", f"{merged}:{THIRD}").returncode == 0
    hub.arrives(THIRD, merged)
    hub.arrives(SECOND, repo.head)
    repo.git("push", "-qf", "origin", f":{FIRST}", f"{merged}:{SECOND}", f":{THIRD}")
    listed = repo.git("ls-remote", hub.address)

    def kept() -> dict[str, str]:
        rows = repo.git("ls-remote", hub.address, "refs/hub/kept/*").splitlines()
        return {ref.partition("/heads/")[2]: oid for oid, ref in (row.split("\t") for row in rows)}

    wanted = {"ralph/00000000": repo.head, "ralph/00000001": repo.head}
    eventually(lambda: kept() == wanted, f"the kept commits of {listed}")
    assert hub.end() == 0
    assert {*hub.run.refs("refs/heads/"), *hub.run.refs("refs/ralph/rescue/")} == {"refs/heads/main", SECOND}


def test_a_refused_ref_is_tried_seldom_and_holds_nothing_else_up(hub: RunningHub) -> None:
    """A hook of origin refuses a whole push because of one session; the others arrive, in few pushes."""
    log = hub.run.directory / "attempts"
    hook = hub.run.remote.path / "hooks/pre-receive"
    hook.write_text(
        f"#!/bin/sh\necho >> {log}\n! grep -q {FIRST} || {{ echo protected name >&2; exit 1; }}\n"
    )
    hook.chmod(0o755)
    hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}", f"HEAD:{THIRD}")
    for ref in (SECOND, THIRD):
        hub.arrives(ref, hub.run.repo.head)
    before = log.read_text().count("\n")
    for number in range(3, 6):  # some more rounds
        assert hub.push(f"HEAD:refs/heads/ralph/{number:08x}").returncode == 0
        hub.arrives(f"refs/heads/ralph/{number:08x}", hub.run.repo.head)
    assert log.read_text().count("\n") - before <= 3 + 3, "one for each new ref, and few retries"
    assert hub.log.read_text().count(f"refused {FIRST}") == 1
    hook.unlink()
    hub.arrives(FIRST, hub.run.repo.head)


def test_a_lost_connection_is_no_refusal(hub: RunningHub) -> None:
    """The hub pushes once, waits, and pushes again; it refuses no ref, and tries no parts of the push."""
    log, hook = hub.run.directory / "attempts", hub.run.remote.path / "hooks/pre-receive"
    hub.run.remote.git("config", "http.receivePack", "true")
    hub.end()
    with http_server(hub.run.directory) as (address, _):
        hub.origin = f"{address}/{hub.run.remote.path.name}"
        hub.start()
        hook.write_text(f"#!/bin/sh\necho >> {log}\nkill -9 $PPID\n")
        hook.chmod(0o755)
        assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}", f"HEAD:{THIRD}").returncode == 0
        said = "push: origin does not answer"
        eventually(lambda: log.exists() and log.read_text().count("\n") > 1, "a second attempt")
        hook.unlink()
        for ref in (FIRST, SECOND, THIRD):
            hub.arrives(ref, hub.run.repo.head)
        assert hub.log.read_text().count(said) == 1, "a warning that repeats is printed once"
        assert "hub.refused" not in hub.log.read_text()
        hub.end()


def test_a_session_that_ends_each_connection_keeps_no_other_back(hub: RunningHub) -> None:
    """Origin answers a fetch, and breaks down when it takes the work of one session."""
    hook = hub.run.remote.path / "hooks/pre-receive"
    hook.write_text(f"#!/bin/sh\ngrep -q {THIRD} && kill -9 $PPID\nexit 0\n")
    hook.chmod(0o755)
    assert hub.push(f"HEAD:{FIRST}", f"HEAD:{SECOND}", f"HEAD:{THIRD}").returncode == 0
    for ref in (FIRST, SECOND):
        hub.arrives(ref, hub.run.repo.head)
    hook.unlink()
    hub.arrives(THIRD, hub.run.repo.head)


DONE, TOO_LARGE = b"Done\n", b"error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413\n"


@pytest.mark.parametrize(
    ("rows", "stderr", "taken", "refused", "is_lost"),
    [
        (b"*\tx:refs/a\t[new branch]\n" + DONE, b"", {"refs/a"}, [], False),
        (b"!\tx:refs/a\t[remote rejected] (hook declined)\n" + DONE, b"", set(), ["refs/a"], False),
        (b"!\tx:refs/a\t[rejected] (stale info)\n" + DONE, b"", set(), [], False),
        (b"!\tx:refs/a\t[remote failure] (remote failed to report status)\n", b"", set(), [], True),
        (DONE, b"error: RPC failed; curl 52 Empty reply from server\n", set(), [], True),
        (DONE, b"error: RPC failed; HTTP 503 curl 22 error: 503\n", set(), [], True),
        (DONE, TOO_LARGE, set(), ["refs/a", "refs/b"], False),
    ],
)
def test_what_a_push_says(
    rows: bytes, stderr: bytes, taken: set[str], refused: list[str], *, is_lost: bool
) -> None:
    """Only an answer of origin refuses a ref; without one, the connection was lost."""
    completed = CompletedCommand(0 if taken else 1, rows, stderr)
    answer = PushAnswer(completed, ["refs/a", "refs/b"])
    assert (answer.taken, answer.refused, answer.is_lost) == (taken, refused, is_lost)


def test_the_worker_says_why_origin_refuses_its_branch(hub: RunningHub) -> None:
    """It waits, and the engine can end it."""
    hook = hub.run.remote.path / "hooks/update"
    hook.write_text('#!/bin/sh\ncase $1 in refs/heads/ralph/*) echo "a quota"; exit 1;; esac\n')
    hook.chmod(0o755)
    hub.run.begin("echo work >> made; git add made; git commit -qm one")
    order = {"RALPH_FLEET_REMOTE": hub.address, "RALPH_FLEET_HUB": "1"}
    worker = hub.run.work(env=order, grace=9)
    said = hub.run.directory / "printed"
    assert worker.process.stderr is not None
    with said.open("wb") as output:
        for line in worker.process.stderr:
            output.write(line)
            if b"a quota" in line:
                break
    worker.process.send_signal(signal.SIGTERM)
    status, _ = worker.ended()
    assert (status, "origin refuses refs/heads/ralph/" in said.read_text()) == (143, True)
    assert f"refs/ralph/fleet/{RUN}/index/0" not in hub.run.refs() or hub.run.state()["state"] == "claimed"
