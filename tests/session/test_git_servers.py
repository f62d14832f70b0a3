"""Sessions on real git servers: over smart HTTP and ssh, on a server that hangs, and on a full disk."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git import remote as git_remote
from tests.support.git_servers import http_server, ssh_server
from tests.support.machines import claim_of, refs
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.system.process import CompletedCommand

MIRRORED = ("--remote", "origin")
SH = ("--", "sh", "-c")
QUICK = 'remote_beat = "200ms"\n'
_SSHD = {"sshd", "sshd-session"}  # from OpenSSH 9.8 on, the second serves a connection


def lives_and_goes(repo: Repo, remote: Repo, env: dict[str, str]) -> None:
    """Run a session on the remote, fetch it, and delete it there."""
    ended = run(repo.path, *MIRRORED, "-n", "1", *SH, "echo a > a", env=env)
    agent_id = ended.report["id"]
    assert claim_of(remote, agent_id)["state"] == "stopped", ended.stderr
    assert remote.show(f"refs/heads/ralph/{agent_id}-wip:a") == b"a\n"
    fetched = command("fetch", "--json", cwd=repo.path, env=env)
    assert [entry["id"] for entry in json.loads(fetched.stdout)["data"]] == [agent_id]
    dropped = command("drop", agent_id, "--force", *MIRRORED, cwd=repo.path, env=env)
    assert (dropped.status, refs(remote)) == (0, {}), dropped.stderr


def cut_off(session: Session) -> dict[str, object]:
    """End a session whose remote does not take its work; return what it says about that."""
    session.press_ctrl_c_until("mirror.incomplete")
    ended = session.finish()
    [missing] = [event for event in ended.events if event["event"] == "mirror.incomplete"]
    return missing


def test_smart_http(repo: Repo, remote: Repo) -> None:
    """A session, its claim and its deletion work over HTTP, in atomic pushes."""
    with http_server(remote.path.parent) as (address, _):
        remote.git("config", "http.receivepack", "true")
        repo.git("remote", "set-url", "origin", f"{address}/{remote.path.name}")
        lives_and_goes(repo, remote, {})


def test_ssh(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """A session, its claim and its deletion work over ssh, in atomic pushes."""
    with ssh_server(tmp_path / "ssh") as (address, client):
        repo.git("remote", "set-url", "origin", f"{address}{remote.path}")
        lives_and_goes(repo, remote, {"GIT_SSH_COMMAND": client})


def _frozen_push(
    repo: Repo, remote: Repo, directory: Path, script: Callable[[str], str], env: dict[str, str]
) -> CompletedCommand | None:
    """Push to sshd, and stop it at its hook, as a machine that is off; return the push if it ends."""
    gate = directory / "gate"
    hook = remote.path / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {gate}\nexec sleep 1000\n")
    hook.chmod(0o755)
    change = git_remote.RemoteChange("refs/heads/work", None, repo.head)
    with ssh_server(directory / "ssh") as (address, client):
        repo.git("remote", "set-url", "origin", f"{address}{remote.path}")
        program = script(f'exec {shutil.which("ssh")} {client.removeprefix("ssh")} "$@"')
        (directory / "bin").mkdir()
        (directory / "bin/ssh").symlink_to(program)
        found = git_environment({**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}", **env})
        with git_remote.start_atomic_push(Git(repo.path, found), "origin", [change]) as push:
            eventually(gate.exists, "the hook")
            started = psutil.Process().children(recursive=True)
            servers = [each for each in started if each.name() in _SSHD]
            hooks = [child for server in servers for child in server.children(recursive=True)]
            for server in servers:
                server.suspend()
            try:
                return push.wait() if push.ended(8.0) else None
            finally:
                for process in {*servers, *hooks}:
                    with suppress(psutil.NoSuchProcess):  # one may end with another
                        process.kill()


@pytest.mark.parametrize(
    ("env", "ends"),
    [({}, True), ({"GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}, False)],
    ids=["ours", "that of the user"],
)
def test_a_push_over_ssh_notices_that_its_server_is_gone(
    repo: Repo,
    remote: Repo,
    tmp_path: Path,
    script: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    env: dict[str, str],
    *,
    ends: bool,
) -> None:
    """Its ssh asks the server for a sign of life, unless the user names a command for ssh."""
    monkeypatch.setattr(git_remote, "_KEEPALIVE", "ssh -o ServerAliveInterval=1 -o ServerAliveCountMax=2")
    completed = _frozen_push(repo, remote, tmp_path, script, env)
    assert (completed is not None) == ends
    assert completed is None or "not responding" in completed.stderr.decode()


def test_the_user_may_name_a_command_for_ssh_in_the_configuration(
    repo: Repo, remote: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """Git takes a variable before that, so the variable is not set then."""
    repo.git("remote", "set-url", "origin", f"ssh://nowhere.invalid{remote.path}")
    named = script(f'echo "$GIT_SSH_COMMAND" > {tmp_path}/mine; exit 1')
    repo.git("config", "--global", "core.sshCommand", named)
    with git_remote.start_remote_listing(Git(repo.path, git_environment(os.environ)), "origin") as running:
        assert running.wait(CAP).status != 0
    assert (tmp_path / "mine").read_text() == "\n"


def test_a_server_that_hangs_holds_up_nothing(repo: Repo, remote: Repo) -> None:
    """The iteration ends while the push hangs; a second Ctrl-C ends the wait, and the work is here."""
    repo.write(".ralph/config.toml", QUICK)
    gate = repo.path.parent / "gate"
    script = f"echo a > a; until [ -e {gate} ]; do sleep 0.05; done"
    remote.git("config", "http.receivepack", "true")
    with http_server(remote.path.parent) as (address, hangs):
        repo.git("remote", "set-url", "origin", f"{address}/{remote.path.name}")
        with Session(repo.path, *MIRRORED, "-n", "2", *SH, script) as session:
            session.wait_for("mirror.pushed")
            hangs.set()
            gate.touch()
            session.wait_for("iteration.ended", 2)
            missing = cut_off(session)
            agent_id = session.directory.name.rpartition("-")[2]
    assert f"refs/heads/ralph/{agent_id}-wip" in str(missing["message"])
    assert repo.show(f"ralph/{agent_id}-wip:a") == b"a\n"


def test_a_push_without_an_answer_ends(repo: Repo, remote: Repo) -> None:
    """Git gives a silent connection up, so that the next push can have a new one."""
    git = Git(repo.path, git_environment(os.environ))
    change = git_remote.RemoteChange("refs/heads/work", None, repo.head)
    with http_server(remote.path.parent) as (address, hangs):
        repo.git("remote", "set-url", "origin", f"{address}/{remote.path.name}")
        hangs.set()
        with git_remote.start_atomic_push(git, "origin", [change], silence=1) as push:
            assert push.ended(CAP)
            assert "too slow" in git_remote.push_error(push.wait())


@needs_mounts
def test_a_full_server_is_named(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """The session says what is not there, and why; no iteration fails."""
    repo.write(".ralph/config.toml", QUICK)
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=600k", "none") as small:
        full = Repo(small / "remote.git")
        repo.git("clone", "-q", "--bare", "--template=", str(remote.path), str(full.path))
        repo.git("remote", "set-url", "origin", str(full.path))
        script = "head -c 3000000 /dev/urandom > big; exec sleep 1000"
        with Session(repo.path, *MIRRORED, *SH, script) as session:
            session.wait_for("mirror.failed")
            missing = cut_off(session)
            agent_id = session.directory.name.rpartition("-")[2]
        assert f"refs/heads/ralph/{agent_id}-wip" in str(missing["message"])
        assert claim_of(full, agent_id)["session"] == session.directory.name
    assert len(repo.show(f"ralph/{agent_id}-wip:big")) == 3000000
