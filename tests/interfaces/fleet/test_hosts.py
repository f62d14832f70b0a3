"""``fleet run --host``: workers over a real sshd on the loopback interface."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.fleet import hosts as hosts_module
from ralph_wrap.interfaces.fleet.hosts import HostFleet, check_hosts
from ralph_wrap.interfaces.fleet.started import StartedRun
from ralph_wrap.system.cancel import NEVER
from tests.support.agent_script import TRUSTED, result_line
from tests.support.git_servers import SSH_SERVER, SSHD
from tests.support.needs import needs
from tests.support.sessions import command, start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interfaces.fleet.runs import FleetRun

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
SetEnv PATH={path} HOME={directory}/home TMPDIR={directory}/tmp
"""
CLIENT = """\
Host one two
  HostName 127.0.0.1
  Port {port}
  IdentityFile {directory}/user
  UserKnownHostsFile {directory}/known
  StrictHostKeyChecking accept-new
Host absent
  HostName 127.0.0.1
  Port 1
"""
COMMIT = "echo work >> made; git add made; git commit -qm one"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return an environment whose ssh reaches the machines *one* and *two*, and not *absent*."""
    directory = tmp_path / "ssh"
    for name in ("home", "tmp", "bin"):
        (directory / name).mkdir(parents=True)
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    config = directory / "sshd_config"
    config.write_text(SERVER.format(port=port, directory=directory, path=path))
    (directory / "config").write_text(CLIENT.format(port=port, directory=directory))
    ssh = directory / "bin/ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {directory}/config "$@"\n')
    ssh.chmod(0o755)
    assert SSHD is not None
    with subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL) as server:

        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens, "sshd")
        yield {"PATH": f"{ssh.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path / "state")}
        server.terminate()


def started(
    run: FleetRun, hosts: dict[str, str], *arguments: str, agents: str = ""
) -> subprocess.Popen[bytes]:
    """Start a run on machines, in the foreground."""
    run.repo.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n")
    run.repo.write(".ralph/config.toml", f'remote_beat = "200ms"\n{agents}')
    run.repo.git("add", "-A")
    run.repo.git("commit", "-qm", "quick beats")
    return start("fleet", "run", *arguments, cwd=run.repo.path, env=hosts)  # type: ignore[return-value]


@needs(SSH_SERVER)
def test_indexes_run_on_machines(fleet_run: FleetRun, hosts: dict[str, str]) -> None:
    """Each is done once, a machine that cannot be reached costs nothing, and the clones go after that."""
    words = ("--count", "3", "-j", "3", "--host", "one", "--host", "absent", "--host", "two", "-n", "1")
    with started(fleet_run, hosts, *words, "--", "sh", "-c", COMMIT) as process:
        stdout, stderr = process.communicate(timeout=4 * CAP)
    assert process.returncode == 0, stderr
    name = stdout.decode().strip()
    listed = command("fleet", "ps", name, cwd=fleet_run.repo.path, env=hosts).stdout.decode()
    assert "3 done; on machines" in listed
    assert [*(fleet_run.directory / "ssh/tmp").iterdir()] == []
    branches = fleet_run.refs("refs/heads/ralph/")
    assert len(branches) == 3


@needs(SSH_SERVER)
def test_a_machine_that_is_never_reached_is_given_up(
    hosts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may be mistyped: the run ends, and its indexes have failed."""
    monkeypatch.setattr(hosts_module, "_REST", 0.1)
    run = StartedRun("r1", "0" * 40, "nowhere", ("absent",), 1)
    fleet = HostFleet(run, 2, 2, tmp_path, {**os.environ, **hosts}, NEVER)
    assert fleet.run() == [0, 1]


@needs(SSH_SERVER)
def test_ctrl_c_saves_what_machines_do(fleet_run: FleetRun, hosts: dict[str, str]) -> None:
    """The end of the connection is SIGTERM for the worker; ``resume`` goes on with the same session."""
    script = f"if [ -e loose ]; then {COMMIT}; else echo x > loose; exec sleep 1000; fi"
    with started(
        fleet_run, hosts, "--count", "1", "--host", "one", "-n", "1", "--", "sh", "-c", script
    ) as process:
        eventually(lambda: fleet_run.holds("loose", "refs/ralph/snapshots/"), "the snapshot")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=2 * CAP)
    assert process.returncode == 130, stderr
    name = stdout.decode().strip()
    [saved] = [ref for ref in fleet_run.refs("refs/heads/ralph/") if ref.endswith("-wip")]
    assert fleet_run.remote.show(f"{saved}:loose") == b"x\n"
    resumed = command("fleet", "resume", name, cwd=fleet_run.repo.path, env=hosts)
    assert resumed.status == 0, resumed.stderr
    assert fleet_run.remote.show(f"{saved.removesuffix('-wip')}:made") == b"work\n"


@needs(SSH_SERVER)
def test_a_machine_keeps_work_that_the_remote_lacks(fleet_run: FleetRun, hosts: dict[str, str]) -> None:
    """No push brings a repository inside of the worktree: its clone stays, and the user reads where."""
    script = f"{COMMIT}; git init -q inner; cd inner; echo x > only; git add only; git commit -qm only"
    words = ("--count", "1", "--host", "one", "-n", "1", "--", "sh", "-c", script)
    with started(fleet_run, hosts, *words) as process:
        _, stderr = process.communicate(timeout=4 * CAP)
    assert process.returncode == 0, stderr
    [workspace] = (fleet_run.directory / "ssh/tmp").iterdir()
    [only] = workspace.glob("clone/project/.ralph/worktrees/*/inner/only")
    assert only.read_text() == "x\n"
    assert b"index 0 has ended on one" in stderr


@needs(SSH_SERVER)
def test_a_limit_on_the_cost_ends_the_sessions_of_machines(
    fleet_run: FleetRun, hosts: dict[str, str]
) -> None:
    """Each ends at its share of the limit, with its work saved."""
    calls = fleet_run.directory / "calls"
    script = fleet_run.directory / "agent.sh"
    script.write_text(f"echo call >> {calls}; echo x >> made\n{result_line('Fine.')}")
    agents = f'[agents.mine]\ncommand = ["sh", "{script}"]\noutput = "claude"\n'
    words = ("--count", "2", "-j", "2", "--host", "one", "--host", "two", "--fleet-max-cost", "2")
    endless = ("-a", "mine", "-p", "go", "-n", "0", "--max-stalls", "0")
    env = hosts | TRUSTED
    with started(fleet_run, env, *words, *endless, agents=agents) as process:
        stdout, stderr = process.communicate(timeout=4 * CAP)
    assert process.returncode == 0, stderr
    name = stdout.decode().strip()
    assert len(calls.read_text().split()) * 0.25 == 2.0
    listed = command("fleet", "ps", name, cwd=fleet_run.repo.path, env=env)
    assert listed.stdout.count(b"max-cost") == 2, listed.stdout
    assert len([ref for ref in fleet_run.refs("refs/heads/ralph/") if ref.endswith("-wip")]) == 2


@needs(SSH_SERVER)
def test_a_remote_that_does_not_answer_is_no_success(fleet_run: FleetRun, hosts: dict[str, str]) -> None:
    """All workers have ended, and only the remote knows whether their indexes are done or stopped."""
    script = f"{COMMIT}; git -C {fleet_run.repo.path} remote remove origin"
    words = ("--count", "1", "--host", "one", "-n", "1", "--", "sh", "-c", script)
    with started(fleet_run, hosts, *words) as process:
        _, stderr = process.communicate(timeout=4 * CAP)
    assert (process.returncode, b"before they were done is unknown" in stderr) == (1, True), stderr


@needs(SSH_SERVER)
def test_the_grace_of_a_machine_ends_a_worker_that_cannot_push(
    fleet_run: FleetRun, hosts: dict[str, str]
) -> None:
    """The remote is away, and Ctrl-C gives each worker the grace of the option; its work stays."""
    script = "echo x > loose; exec sleep 1000"
    words = ("--count", "1", "--host", "one", "--host-grace", "8s", "-n", "1", "--", "sh", "-c", script)
    with started(fleet_run, hosts, *words) as process:
        eventually(lambda: fleet_run.holds("loose", "refs/ralph/snapshots/"), "the snapshot")
        fleet_run.remote.path.rename(fleet_run.directory / "away.git")
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=2 * CAP)
    assert (process.returncode, b"some work of index 0 is only on one" in stderr) == (130, True), stderr
    assert 2 < time.monotonic() - begun < 40, "the grace without this option is a minute"
    [workspace] = (fleet_run.directory / "ssh/tmp").iterdir()
    refs = fleet_run.repo.git("-C", str(workspace / "clone/project"), "for-each-ref", "refs/heads/ralph/")
    assert "-wip" in refs


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "a;b", "", "user@-x y"])
def test_a_name_that_is_no_machine_is_refused(name: str) -> None:
    """Ssh would take it for an option, or a shell for a command."""
    with pytest.raises(UsageError):
        check_hosts([name])
