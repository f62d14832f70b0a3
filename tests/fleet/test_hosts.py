"""``fleet run --host``: workers over a real sshd on the loopback interface."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import UsageError
from ralph_wrap.fleet.hosts import check_hosts
from tests.support.sessions import command, start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.runs import FleetRun

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
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


has_sshd = pytest.mark.skipif(not Path(SSHD).exists(), reason="sshd is not installed")


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
    with subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL) as server:

        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens, "sshd")
        yield {"PATH": f"{ssh.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path / "state")}
        server.terminate()


def started(run: FleetRun, hosts: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """Start a run on machines, in the foreground."""
    run.repo.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n")
    run.repo.write(".ralph/config.toml", 'remote_beat = "200ms"\n')
    run.repo.git("add", "-A")
    run.repo.git("commit", "-qm", "quick beats")
    return start("fleet", "run", *arguments, cwd=run.repo.path, env=hosts)  # type: ignore[return-value]


@has_sshd
@pytest.mark.slow
def test_indexes_run_on_machines(fleet_run: FleetRun, hosts: dict[str, str]) -> None:
    """Each is done once, a machine that cannot be reached costs nothing, and the clones go after that."""
    words = ("--count", "3", "-j", "3", "--host", "one", "--host", "absent", "--host", "two", "-n", "1")
    with started(fleet_run, hosts, *words, "--", "sh", "-c", COMMIT) as process:
        stdout, stderr = process.communicate(timeout=4 * CAP)
    assert process.returncode == 0, stderr
    name = stdout.decode().strip()
    listed = command("fleet", "ps", name, cwd=fleet_run.repo.path, env=hosts).stdout.decode()
    assert "3 done; its Job is on machines" in listed
    assert [*(fleet_run.directory / "ssh/tmp").iterdir()] == []
    branches = fleet_run.refs("refs/heads/ralph/")
    assert len(branches) == 3


@has_sshd
@pytest.mark.slow
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


@has_sshd
@pytest.mark.slow
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
    assert b"index 0 is done on one" in stderr


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "a;b", "", "user@-x y"])
def test_a_name_that_is_no_machine_is_refused(name: str) -> None:
    """Ssh would take it for an option, or a shell for a command."""
    with pytest.raises(UsageError):
        check_hosts([name])
