"""A session on a remote, when something goes wrong: a signal, a refusal, work that cannot be saved."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.support.blocking_git import Gate
from tests.support.git_shim import shim_git
from tests.support.machines import claim_of, refs
from tests.support.sessions import Session, command, run, start
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.repo import Repo

MIRRORED = ("--remote", "origin")
SH = ("--", "sh", "-c")
QUICK = 'remote_beat = "200ms"\n'


def refuse(remote: Repo, pattern: str) -> Path:
    """Let the remote refuse refs that match a pattern of the shell; return the hook."""
    hook = remote.path / "hooks" / "update"
    hook.write_text(f'#!/bin/sh\ncase $1 in {pattern}) echo "a protected name" >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    return hook


def test_a_signal_waits_for_no_snapshot(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """The session acts on it while git hangs in a snapshot, and saves the work at its end."""
    repo.write(".ralph/config.toml", QUICK)
    with Gate(tmp_path / "gate", "commit-tree") as gate:
        script = "echo made > made; exec sleep 1000"
        with Session(repo.path, *MIRRORED, *SH, script, env=gate.env) as session:
            gate.wait()
            session.send(signal.SIGTERM)
            session.wait_for("signal.received")
            ended = session.finish()
    assert ended.report["ended_by"] == "signal", ended.stderr
    assert remote.show(f"refs/heads/ralph/{ended.report['id']}-wip:made") == b"made\n"


def test_a_session_without_a_worktree_has_no_claim(repo: Repo, remote: Repo) -> None:
    """It works in the plain directory, whose work has no mirror; so it gives its claim back at once."""
    repo.git("branch", "ralph")
    seen = repo.path.parent / "seen"
    look = f"git -C {remote.path} for-each-ref refs/ralph > {seen}"
    ended = run(repo.path, *MIRRORED, "-n", "1", *SH, look)
    assert ended.report["fallback"]
    assert (seen.read_text(), refs(remote)) == ("", {})


def test_a_remote_that_refuses_the_work_keeps_the_claim(repo: Repo, remote: Repo) -> None:
    """The claim moves on and says what is missing, so that other machines see a session that lives."""
    repo.write(".ralph/config.toml", QUICK)
    hook = refuse(remote, "refs/ralph/snapshots/*")
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, "echo a > a; exec sleep 1000") as session:
        agent_id = session.directory.name.rpartition("-")[2]
        session.wait_for("agent.started")
        first = eventually(
            lambda: claim_of(remote, agent_id)["incomplete"] and claim_of(remote, agent_id), "it"
        )
        assert "a protected name" in first["incomplete"] or "declined" in first["incomplete"]
        eventually(
            lambda: claim_of(remote, agent_id)["sequence"] > first["sequence"] + 1, "the claim to move"
        )
        assert not [ref for ref in refs(remote) if "snapshots" in ref]
        hook.unlink()
        eventually(lambda: [ref for ref in refs(remote) if "snapshots" in ref], "the snapshot")
        assert claim_of(remote, agent_id)["incomplete"] == ""
        session.send(signal.SIGTERM)
        session.finish()


def test_the_end_of_a_session_says_what_the_remote_refused(repo: Repo, remote: Repo, other: Repo) -> None:
    """The claim says stopped and incomplete; the session names the refs; fetch passes the reason on."""
    refuse(remote, "refs/heads/*-wip")
    begun = repo.path.parent / "begun"
    script = f"echo a > a; touch {begun}; exec sleep 1000"
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, script) as session:
        agent_id = session.directory.name.rpartition("-")[2]
        eventually(begun.exists, "the work")
        session.send(signal.SIGTERM)
        ended = session.finish()
    claim = claim_of(remote, agent_id)
    assert (claim["state"], bool(claim["incomplete"])) == ("stopped", True), ended.stderr
    [missing] = [event for event in ended.events if event["event"] == "mirror.incomplete"]
    assert f"refs/heads/ralph/{agent_id}-wip" in json.dumps(missing)
    [entry] = json.loads(command("fetch", "--json", cwd=other.path).stdout)["data"]
    assert claim["incomplete"] in entry["note"]


def test_refused_work_is_pushed_in_growing_waits(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """The claim goes alone meanwhile, so that other machines see which one has the work."""
    repo.write(".ralph/config.toml", QUICK)
    log = tmp_path / "pushes"
    hook = remote.path / "hooks" / "pre-receive"
    hook.write_text(
        f"#!/bin/sh\nif grep -q -e -wip; then echo work >> {log}; exit 1; fi; echo claim >> {log}\n"
    )
    hook.chmod(0o755)
    with Session(repo.path, *MIRRORED, "-n", "1", *SH, "echo a > a") as session:
        session.wait_for("agent.exited")
        eventually(lambda: log.exists() and "work\nclaim\nclaim\nwork\n" in log.read_text(), "a longer wait")
        session.send(signal.SIGTERM)
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert [event for event in ended.events if event["event"] == "mirror.incomplete"]


def test_a_worktree_that_stays_is_mirrored(repo: Repo, remote: Repo) -> None:
    """Nothing has saved its files on a branch, so the remote has a snapshot of them."""
    ended = run(repo.path, *MIRRORED, "--keep-worktree", "-n", "1", *SH, "echo a > a")
    agent_id = ended.report["id"]
    assert ended.report["kept"]
    assert claim_of(remote, agent_id)["incomplete"] == ""
    [snapshot] = [ref for ref in refs(remote) if ref.startswith("refs/ralph/snapshots/")]
    assert remote.show(f"{snapshot}:a") == b"a\n"


def test_a_remote_that_is_back_before_it_has_the_work_is_pushed_to_again(
    repo: Repo, remote: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push and the look after it fail; the next look finds the remote, and no refusal."""
    away, still = tmp_path / "away", tmp_path / "still-away"
    failing = f'*" push "*) [ ! -e {away} ] || {{ mv {away} {still}; exit 128; }} ;;'
    look = f'*" fetch "*) [ ! -e {still} ] || {{ rm {still}; exit 128; }} ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f"{failing}\n{look}"))
    agent = f"git commit -q --allow-empty -m work; touch {away}"
    ended = run(repo.path, "-n", "1", *MIRRORED, *SH, agent)
    branch = ended.report["branch"]
    assert (away.exists(), still.exists()) == (False, False)
    assert "mirror.failed" in ended.stderr
    assert remote.git("rev-parse", branch) == repo.git("rev-parse", branch)


def test_a_push_without_an_answer_does_not_stand_for_the_last_one(
    repo: Repo, remote: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote took it, and was away until the session ended: what came after it is pushed, too."""
    repo.write(".ralph/config.toml", QUICK)
    lost, away, ended = tmp_path / "lost", tmp_path / "away", tmp_path / "ended"
    push = f'*" push "*) [ ! -e {lost} ] || {{ "$REAL" "$@"; mv {lost} {away}; exit 128; }} ;;'
    look = f'*" fetch "*) [ ! -e {away} ] || {{ [ ! -e {ended} ] || rm {away}; exit 128; }} ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f"{push}\n{look}"))
    commit = "git commit -q --allow-empty -m work"
    wait = f"until [ -e {away} ]; do sleep 0.05; done"
    session = run(repo.path, "-n", "1", *MIRRORED, *SH, f"touch {lost}; {wait}; {commit}; touch {ended}")
    branch = session.report["branch"]
    assert not away.exists()
    assert remote.git("rev-parse", branch) == repo.git("rev-parse", branch)
    assert claim_of(remote, session.report["id"])["state"] == "stopped"


def test_a_push_that_arrives_after_the_next_look_is_the_sessions_own(
    repo: Repo, remote: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server goes on with a push whose client has gone; the session knows that push again."""
    repo.write(".ralph/config.toml", QUICK)
    slow, late, arrived = (tmp_path / name for name in ("slow", "late", "arrived"))
    keep = f'[ ! -e {slow} ] || {{ printf "%s\\n" "$@" > {late}; rm {slow}; exit 128; }}'
    bring = f'xargs -d "\\n" -a {late} "$REAL" > {arrived}.new; rm {late}; mv {arrived}.new {arrived}'
    cases = f'*" push "*) {keep}; [ ! -e {late} ] || {{ {bring}; }} ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", cases))
    commit = "git commit -q --allow-empty -m work"
    wait = f"until [ -e {arrived} ]; do sleep 0.05; done"
    session = run(repo.path, "-n", "1", *MIRRORED, *SH, f"{commit}; touch {slow}; {wait}; {commit}")
    branch = session.report["branch"]
    assert session.report["ended_by"] == "max-iterations", session.stderr
    assert remote.git("rev-parse", branch) == repo.git("rev-parse", branch)
    assert not [ref for ref in refs(remote) if "rescue" in ref]


def test_a_start_that_was_killed_gives_its_claim_back(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """The agent never ran: after the next command here, the remote has nothing of it."""
    with (
        Gate(tmp_path / "gate", "read-tree") as gate,
        Session(repo.path, *MIRRORED, *SH, "true", env=gate.env) as session,
    ):
        gate.wait()
        eventually(
            lambda: repo.git("for-each-ref", "refs/ralph-remotes/"), what="the session knows its claim"
        )
        [claim] = refs(remote)
        session.send(signal.SIGKILL)
        session.process.wait()
    assert [*refs(remote)] == [claim]
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, refs(remote)) == (0, {}), swept.stderr


def test_a_forged_record_gives_no_claim_of_another_machine_back(
    repo: Repo, remote: Repo, tmp_path: Path
) -> None:
    """The session of the other machine would lose its claim, and end."""
    with (
        Gate(tmp_path / "gate", "read-tree") as gate,
        Session(repo.path, *MIRRORED, *SH, "true", env=gate.env) as session,
    ):
        gate.wait()
        [ref] = refs(remote)
        session.send(signal.SIGKILL)
        session.process.wait()
    agent_id = ref.rpartition("/")[2]
    (tmp_path / "claim").write_text(json.dumps(claim_of(remote, agent_id) | {"node": "elsewhere"}))
    claim = repo.git("hash-object", "-w", str(tmp_path / "claim"))
    repo.git("push", "-q", "--force", "origin", f"{claim}:{ref}")
    repo.git("fetch", "-q", "origin", f"+{ref}:refs/ralph-remotes/origin/ralph/claims/{agent_id}")
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, refs(remote)) == (0, {ref: claim}), swept.stderr


def test_a_killed_start_on_another_machine_leaves_the_work_free(
    repo: Repo, remote: Repo, other: Repo, tmp_path: Path
) -> None:
    """It went on from a session there: the claim says stopped, so that no machine waits for it."""
    agent_id = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo a > a").report["id"]
    environ = {"RALPH_TRUST": "1"}
    with Gate(tmp_path / "gate", "read-tree") as gate:
        words = ("resume", agent_id, *MIRRORED, "-n", "1")
        with start(*words, cwd=other.path, env=environ | gate.env) as process:
            gate.wait()
            process.kill()
    before = claim_of(remote, agent_id)
    assert before["state"] == "running"
    assert command("sweep", cwd=other.path).status == 0
    claim = claim_of(remote, agent_id)
    assert (claim["state"], claim["work"]) == ("stopped", f"refs/heads/ralph/{agent_id}-wip")
    again = command("resume", agent_id, *MIRRORED, "-n", "1", cwd=repo.path, env=environ)
    assert again.status == 0, again.stderr
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
