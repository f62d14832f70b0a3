"""The sandbox: each attack of a scripted agent succeeds without it, and fails in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sandboxes import PYTHON
from tests.support.sessions import Session, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.repo import Repo


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a user with a key, an ssh-agent, a Docker engine, and a temporary file."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id_secret").write_text("secret\n")
    monkeypatch.chdir(home)  # a path of a socket has 108 bytes at most
    with contextlib.ExitStack() as stack:
        for name in ("agent.sock", "docker.sock"):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
        temporary = stack.enter_context(tempfile.NamedTemporaryFile(dir="/tmp"))
        yield {
            "SSH_AUTH_SOCK": f"{home}/agent.sock",
            "DOCKER_HOST": f"unix://{home}/docker.sock",
            "OF_ANOTHER_PROGRAM": temporary.name,
        }


CONNECT = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

ATTACKS = {
    "project": 'echo x > "$RALPH_PROJECT/owned"',
    "config": 'git config --file "$RALPH_PROJECT/.git/config" alias.x "!evil"',
    "hook": 'mkdir -p "$RALPH_PROJECT/.git/hooks" && echo x > "$RALPH_PROJECT/.git/hooks/pre-commit"',
    "main": "git update-ref refs/heads/main HEAD",
    "record": 'echo x > "$RALPH_PROJECT/.ralph/run/sessions/$RALPH_SESSION_ID/forged"',
    "home": 'echo x > "$HOME/.profile"',
    "alternates": 'echo /x > "$RALPH_PROJECT/.git/objects/info/alternates.new"',
    "commondir": 'echo ../.. > "$(git rev-parse --git-dir)/commondir"',
    "pointer": "cp .git git && mv git .git",
    "key": 'cat "$HOME/.ssh/id_secret"',
    "agent": f'cd "$HOME" && {PYTHON} -c "{CONNECT}" agent.sock',
    "docker": f'cd "$HOME" && {PYTHON} -c "{CONNECT}" docker.sock',
    "temporary": 'cat "$OF_ANOTHER_PROGRAM"',
    "signal": 'kill -0 "$(cat ppid)"',
    "process": 'cat "/proc/$(cat ppid)/environ"',
}
"""Commands of an agent. The session's pid is in the file ``ppid``, which the agent reads from its record."""

_PID = r"""
cd "$RALPH_WORKSPACE"
sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$RALPH_PROJECT/.ralph/run/agents/$RALPH_AGENT_ID.json" > ppid
"""


def _script() -> str:
    tries = [f"if ( {attack} ) >/dev/null 2>&1; then echo did {name}; fi" for name, attack in ATTACKS.items()]
    return "\n".join([_PID, 'test -s ppid || echo "no pid"', *tries])


@pytest.fixture
def succeeding(
    repo: Repo, script: Callable[[str], str], world: Mapping[str, str]
) -> Callable[[str], set[str]]:
    """Return a function that tries all attacks in a sandbox, and returns the names of those that succeed."""
    agent = script(_script())

    def attack(mode: str) -> set[str]:
        result = run(repo.path, "-n", "1", "--sandbox", mode, "--", agent, env=world)
        assert result.ending[:2] == ("max-iterations", 1), result.stderr
        lines = result.stdout.decode().splitlines()
        assert all(line.startswith("did ") for line in lines), result.stdout
        return {line.removeprefix("did ") for line in lines}

    return attack


def test_each_attack_succeeds_without_a_sandbox(succeeding: Callable[[str], set[str]]) -> None:
    """Otherwise the tests below would prove nothing."""
    assert succeeding("off") == {*ATTACKS}


def test_bubblewrap_stops_each_attack(succeeding: Callable[[str], set[str]], bwrap: str) -> None:
    """The agent writes only its workspace, reads no keys, and sees no other process."""
    assert succeeding(bwrap) == set()


def test_landlock_stops_writes_and_signals(succeeding: Callable[[str], set[str]], landlock: str) -> None:
    """It cannot hide files and sockets, nor protect a file in a directory that the agent writes.

    Whether the environment of another process can be read depends on the kernel.
    """
    reads = {"key", "agent", "docker", "temporary"}
    assert succeeding(landlock) - {"process"} == reads | {"commondir", "pointer", "alternates"}


@pytest.mark.parametrize("mode", ["bwrap", "landlock"])
def test_a_whole_session_works(repo: Repo, mode: str, request: pytest.FixtureRequest) -> None:
    """The agent commits, the session saves the rest, and the promise counts."""
    request.getfixturevalue(mode)
    body = (
        'echo one > "${TMPDIR:-/tmp}/one" && cp "${TMPDIR:-/tmp}/one" one && git add one && git commit -qm 1'
        " && git branch ralph/another && echo two > two && echo '<promise>COMPLETE</promise>'"
    )
    result = run(repo.path, "--sandbox", mode, "--", "sh", "-c", body)
    assert result.ending == ("promise", 1, 0), result.stderr
    branch = result.report["branch"]
    assert repo.show(f"{branch}:one") == b"one\n"
    assert repo.show(f"{branch}-wip:two") == b"two\n"
    assert repo.worktrees() == []
    repo.git("fsck", "--strict")


def test_the_plain_project_root_works(repo: Repo, bwrap: str) -> None:
    """The agent changes files and commits there, but not the configuration, the hooks and the records."""
    body = """
        echo one > one && git add one && git commit -qm one
        echo x > .git/config; echo x > .git/hooks/pre-commit; mv .git .git2; mv .ralph .ralph2
    """
    before = repo.fingerprint()
    result = run(repo.path, "-n", "1", "--isolation", "off", "--sandbox", bwrap, "--", "sh", "-c", body)
    assert result.ending[:2] == ("max-iterations", 1), result.stderr
    assert repo.show("HEAD:one") == b"one\n"
    after = repo.fingerprint()
    assert (after["config"], after["hooks"]) == (before["config"], before["hooks"])


@pytest.mark.parametrize("mode", ["off", "bwrap"])
def test_only_a_sandbox_keeps_the_session_from_being_killed(
    repo: Repo, script: Callable[[str], str], mode: str, bwrap: str
) -> None:
    """``kill -9`` of the recorded owner."""
    assert bwrap
    agent = script(f'{_PID}\nkill -9 "$(cat ppid)" $PPID\nexec true')
    result = run(repo.path, "-n", "1", "--sandbox", mode, "--", agent)
    assert result.status == (-signal.SIGKILL if mode == "off" else 0), result.stderr


@pytest.mark.parametrize("mode", ["off", "bwrap"])
def test_only_a_sandbox_ends_the_daemon_of_a_killed_session(
    repo: Repo, mode: str, bwrap: str, ended: None
) -> None:
    """The daemon has no parent, no environment and no descriptors, so a sweep cannot find it."""
    assert (bwrap, ended) == ("bwrap", None)
    name = f"daemon-{os.getpid()}-{repo.path.parent.name}"
    daemon = (
        f'for fd in $(ls /proc/self/fd); do eval "exec $fd>&-"; done; echo x > up; exec -a {name} sleep 600'
    )
    body = f"setsid env -i bash -c '{daemon}' & sleep 600"
    with Session(repo.path, "--sandbox", mode, "--", "bash", "-c", body) as session:
        workspace = Path(session.wait_for("workspace.created")["path"])
        eventually((workspace / "up").exists, "the daemon")
        [pid] = eventually(lambda: _running(name), "the daemon's program")
        session.send(signal.SIGKILL)
        session.process.wait()
    try:
        if mode == "off":
            assert _running(name) == [pid]
        else:
            eventually(lambda: not _running(name), "the daemon's end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _running(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if path.read_bytes().startswith(name.encode()) else []
    return found


def test_the_agent_has_its_grace(repo: Repo, bwrap: str) -> None:
    """SIGTERM reaches it through the sandbox, and its last words are saved."""
    body = "trap 'echo bye > last; exit 7' TERM; echo ready > first; while :; do read -r x < fifo; done"
    agent = ("sh", "-c", f"mkfifo fifo; {body}")
    with Session(repo.path, "--sandbox", bwrap, "--grace", "60s", "--", *agent) as session:
        workspace = Path(session.wait_for("workspace.created")["path"])
        eventually((workspace / "first").exists, "the agent's trap")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert result.status == 128 + signal.SIGTERM
    assert repo.show(f"{result.report['branch']}-wip:last") == b"bye\n"


def test_an_agent_that_cannot_run_is_an_error(repo: Repo, bwrap: str) -> None:
    """The same as without a sandbox: no iteration fails again and again."""
    repo.write("agent.sh", "#!/nonexistent/interpreter\n", executable=True)
    repo.commit("an agent")
    result = run(repo.path, "--sandbox", bwrap, "--", "./agent.sh")
    assert (result.status, result.warnings[-1]["message"]) == (
        127,
        f"agent command ./agent.sh was not found in {result.report['workspace']}",
    )


def test_a_sandbox_that_hangs_does_not_outlive_a_signal(repo: Repo, tmp_path: Path, bwrap: str) -> None:
    """A mount below one of its own may not answer; the work of the iteration before is saved."""
    real, hangs = shutil.which("bwrap"), tmp_path / "hangs"
    program = tmp_path / "bin/bwrap"
    program.parent.mkdir()
    hang = f'if [ "$RALPH_ITERATION" = 2 ]; then touch {hangs}; exec sleep 1000; fi'
    program.write_text(f'#!/bin/sh\n{hang}\nexec {real} "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    with Session(repo.path, "--sandbox", bwrap, "--", "sh", "-c", "echo work > work", env=env) as session:
        eventually(hangs.exists, "the second sandbox")
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert ended.ending == ("signal", 2, 143)
    assert repo.git("show", f"{ended.report['branch']}-wip:work") == "work"
