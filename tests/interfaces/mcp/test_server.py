"""``ralph-wrap mcp``: the installed program, by the client of the official SDK or by hand."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from anyio.from_thread import start_blocking_portal

from tests.support.blocking_git import Gate
from tests.support.directory_listing import listing
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, command
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp_types import CallToolResult


class Agent(NamedTuple):
    """An agent that has started a server, and talks to it."""

    portal: BlockingPortal
    client: Client

    def ask(self, tool: str, **arguments: object) -> CallToolResult:
        """Call a tool."""
        result: CallToolResult = self.portal.call(self.client.call_tool, tool, arguments)
        return result

    def call(self, tool: str, **arguments: object) -> Any:
        """Call a tool and return its answer, which is the same as structure and as text."""
        result = self.ask(tool, **arguments)
        assert not result.is_error, result
        assert json.loads(_text(result)) == result.structured_content
        return result.structured_content

    def fail(self, tool: str, **arguments: object) -> tuple[str, ...]:
        """Call a tool and return the lines of its error."""
        result = self.ask(tool, **arguments)
        assert result.is_error, result
        assert result.structured_content is None
        first, *others = _text(result).split("\n")
        error = f"Error executing tool {tool}: "
        assert first.startswith(error)
        return (first.removeprefix(error), *others)


def _text(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return content.text


@contextlib.contextmanager
def serving(directory: Path, *arguments: str, **environ: str) -> Iterator[Agent]:
    """Start a server and a client in a directory; the client checks each answer against the tool's schema."""
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 -- each worker collects all tests: 1.5 s
    from mcp.client.stdio import stdio_client  # noqa: PLC0415

    parameters = StdioServerParameters(
        command=PROGRAM, args=["mcp", *arguments], cwd=directory, env={**os.environ, **environ}
    )
    with open(os.devnull, "w") as nowhere, start_blocking_portal() as portal:  # noqa: PTH123
        connecting = Client(stdio_client(parameters, errlog=nowhere))
        with portal.wrap_async_context_manager(connecting) as client:
            yield Agent(portal, client)


def entered(repo: Repo) -> Repo:
    """Return the worktree that was entered by the name *try*."""
    inside = Repo(repo.path / ".ralph" / "worktrees" / "try")
    assert inside.git("symbolic-ref", "HEAD") == "refs/heads/ralph/try"
    return inside


def state(repo: Repo) -> dict[str, object]:
    """Return everything that a call could change."""
    return {"files": listing(repo.path / ".ralph" / "worktrees"), **repo.fingerprint()}


# What an agent sees


def test_the_tools_and_their_schemas(repo: Repo) -> None:
    """An agent knows no more of them than this."""
    with serving(repo.path) as agent:
        tools = {tool.name: tool for tool in agent.portal.call(agent.client.list_tools).tools}
    for tool in tools.values():
        tool.input_schema.pop("title")
        for described in tool.input_schema["properties"].values():
            described.pop("title")
            assert described.pop("description")
    assert {name: tool.input_schema for name, tool in tools.items()} == {
        "enter_worktree": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "tmux": {"type": "boolean", "default": False}},
            "required": ["name"],
        },
        "exit_worktree": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["keep", "remove"]},
                "discard_changes": {"type": "boolean", "default": False},
            },
            "required": ["action"],
        },
        "worktree_status": {"type": "object", "properties": {}},
    }
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert [name for name, hint in hints.items() if hint and hint.read_only_hint] == ["worktree_status"]
    assert [name for name, hint in hints.items() if hint and hint.destructive_hint] == ["exit_worktree"]


def test_enter_look_and_exit(repo: Repo) -> None:
    """The fields are those of the commands; status is that of the entered worktree, while there is one."""
    with serving(repo.path) as agent:
        assert agent.call("worktree_status") == {"isWorktree": False}
        made = agent.call("enter_worktree", name="try")
        inside = entered(repo)
        assert made == {
            "path": str(inside.path),
            "branch": "ralph/try",
            "basedOn": repo.head,
            "originalCwd": str(repo.path),
            "tmuxSession": None,
        }
        assert agent.call("worktree_status") == {
            "isWorktree": True,
            "path": str(inside.path),
            "branch": "ralph/try",
            "mainRepoPath": str(repo.path),
        }
        assert agent.call("exit_worktree", action="remove") == {
            "action": "remove",
            "removed": True,
            "path": str(inside.path),
            "branch": "ralph/try",
            "originalCwd": str(repo.path),
            "tmuxSession": None,
            "message": f"{inside.path} is removed, branch ralph/try too",
        }
        assert not inside.path.exists()
        assert agent.call("worktree_status") == {"isWorktree": False}
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


# Errors


def test_remove_refuses_what_would_be_lost(repo: Repo) -> None:
    """It is listed on one line, whatever names of files hold; then it can be discarded, once."""
    with serving(repo.path) as agent:
        agent.call("enter_worktree", name="try")
        inside = entered(repo)
        inside.write(os.fsdecode(b"odd\n\xff"))
        inside.git("commit", "-q", "--allow-empty", "-m", "My work")
        commit = f"commit not on main: {inside.head[:12]} My work"
        before = state(repo)
        assert agent.fail("exit_worktree", action="remove") == (
            rf"refused: {inside.path} would be lost with: uncommitted: odd\n\udcff; {commit}",
            'hint: to keep it: exit_worktree with action "keep"',
            'hint: to remove it with all its work: exit_worktree with action "remove", discard_changes: true',
        )
        assert state(repo) == before
        assert agent.call("exit_worktree", action="remove", discard_changes=True)["removed"] is True
        assert not inside.path.exists()
        before = state(repo)
        for action in ("keep", "remove"):
            answer = agent.call("exit_worktree", action=action, discard_changes=True)
            assert answer["message"].startswith("No-op")
            assert (answer["removed"], answer["path"]) == (False, None)
        assert state(repo) == before


def test_mistaken_calls(repo: Repo) -> None:
    """Each error says what to do, nothing is made or lost, and the next call works."""
    with serving(repo.path) as agent:
        agent.call("enter_worktree", name="try")
        inside = entered(repo)
        inside.write("new")
        before = state(repo)
        assert agent.fail("enter_worktree", name="other") == (
            f"conflict: session {_session(repo)} is already in {inside.path} on ralph/try",
            'hint: exit_worktree with action "keep"',
        )
        mistakes: list[tuple[dict[str, Any], str, str]] = [
            ({"action": "drop"}, "action", "Input should be 'keep' or 'remove'"),
            ({"discard_changes": True}, "action", "Field required"),
            *[
                ({"action": "remove", "discard_changes": given}, "discard_changes", "a valid boolean")
                for given in ("true", "yes", 1)
            ],
        ]
        for given, argument, printed in mistakes:
            count, name, reason, *_ = agent.fail("exit_worktree", **given)
            assert (count[:18], name) == ("1 validation error", argument)
            assert printed in reason
        for name in ("a/b", "", "a\0b", "-x", "beef"):
            assert agent.fail("enter_worktree", name=name)[0].startswith("usage: "), name
        assert agent.fail("exit_worktree", action="remove", discard=True)[0].startswith("refused: ")
        assert _text(agent.ask("leave")) == "Unknown tool: leave"
        shutil.rmtree(repo.path / ".ralph" / "run")
        repo.write(".ralph/run", "where a directory of ours should be")
        message, hint = agent.fail("exit_worktree", action="remove", discard_changes=True)
        assert (message[:8], hint[:6]) == ("failed: ", "hint: ")
        assert state(repo) == before
        assert agent.call("worktree_status")["path"] == str(inside.path)


def test_outside_of_a_repository(tmp_path: Path) -> None:
    """The server serves all the same: there may be one later, wherever the server was started."""
    elsewhere, later = tmp_path / "elsewhere", tmp_path / "later"
    elsewhere.mkdir()
    later.mkdir()
    with serving(elsewhere, "-C", "../later") as agent:
        message, hint = agent.fail("enter_worktree", name="try")
        assert message.startswith("not_a_repository: ")
        assert hint.startswith("hint: git init")
        assert agent.fail("worktree_status")[0] == message
        assert agent.call("exit_worktree", action="remove")["message"].startswith("No-op")
        repo = make_repo(later)
        assert agent.call("enter_worktree", name="try")["originalCwd"] == str(elsewhere)
        assert agent.call("exit_worktree", action="keep")["removed"] is False
        assert entered(repo).path.exists()
        assert agent.call("worktree_status") == {"isWorktree": False}


# Sessions


def _session(repo: Repo) -> str:
    [mark] = repo.path.glob(".git/worktrees/*/ralph-wrap.json")
    return str(json.loads(mark.read_text())["session"])


def test_two_servers_do_not_see_each_others_worktrees(repo: Repo) -> None:
    """Each is a session of its own, unless an argument names another session."""
    with serving(repo.path) as one, serving(repo.path) as other:
        one.call("enter_worktree", name="one")
        assert other.call("worktree_status") == {"isWorktree": False}
        before = state(repo)
        answer = other.call("exit_worktree", action="remove", discard_changes=True)
        assert answer["message"].startswith("No-op")
        assert state(repo) == before
        other.call("enter_worktree", name="other")
        assert one.call("worktree_status")["branch"] == "ralph/one"
        assert other.call("worktree_status")["branch"] == "ralph/other"


def test_a_named_session_is_that_of_the_commands(repo: Repo) -> None:
    """What the one has entered, the other can exit; ``--session`` is stronger than the environment."""
    with serving(repo.path, "--session", "mine", RALPH_SESSION_ID="theirs") as agent:
        agent.call("enter_worktree", name="try")
        assert _session(repo) == "mine"
        typed = ("worktree", "exit", "--action", "remove", "--session", "mine")
        assert command(*typed, cwd=repo.path).status == 0
        assert agent.call("worktree_status") == {"isWorktree": False}
        assert command("worktree", "enter", "next", "--session", "mine", cwd=repo.path).status == 0
        assert agent.call("worktree_status")["branch"] == "ralph/next"
        assert agent.call("exit_worktree", action="remove")["branch"] == "ralph/next"


# The life of the server


class ByHand:
    """A server that is spoken to by hand; leaving the context kills what is left of it."""

    def __init__(self, repo: Repo, **environ: str) -> None:
        self.process = subprocess.Popen(
            (PROGRAM, "mcp", "--session", "mine"),
            cwd=repo.path,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        information = {"name": "test", "version": "1"}
        self.ask(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=information
        )  # before this answer, no other request may be made
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["result"]["serverInfo"]["name"] == "ralph-wrap"
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass

    def ask(self, method: str, **parameters: object) -> None:
        """Send a request."""
        self._send({"jsonrpc": "2.0", "id": method, "method": method, "params": parameters})

    def _send(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Return the next message."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def end(self) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]]]:
        """Wait for its end, standard input closed; return status, messages not heard yet, and narration."""
        stdout, stderr = self.process.communicate(timeout=CAP)
        said, printed = ([json.loads(line) for line in lines.splitlines()] for lines in (stdout, stderr))
        return self.process.returncode, said, printed


def test_pings_are_answered_while_git_works(repo: Repo, tmp_path: Path) -> None:
    """A client may take a silent server for a dead one. And the end of standard input ends the server."""
    with Gate(tmp_path / "gate", "update-ref") as gate, ByHand(repo, **gate.env) as server:
        server.ask("tools/call", name="enter_worktree", arguments={"name": "try"})
        gate.wait()
        server.ask("ping")
        assert server.hear() == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        gate.open()
        answer = server.hear()
        assert (answer["id"], answer["result"]["isError"]) == ("tools/call", False)
        status, said, printed = server.end()
        assert (status, said, [line["event"] for line in printed]) == (0, [], ["server.started"])
        assert "session mine" in printed[0]["message"]


@pytest.mark.parametrize("way", ["client gone", "TERM"])
def test_what_has_begun_is_brought_to_its_end(repo: Repo, tmp_path: Path, way: str) -> None:
    """Whatever ends the server in the middle of a call; nothing is printed that looks like a bug."""
    with Gate(tmp_path / "gate", "update-ref") as gate, ByHand(repo, **gate.env) as server:
        server.ask("tools/call", name="enter_worktree", arguments={"name": "try"})
        gate.wait()
        if way == "TERM":  # standard input stays open
            server.process.terminate()
        else:
            assert server.process.stdout is not None
            assert server.process.stdin is not None
            server.process.stdout.close()
            server.ask("ping")  # an answer without a reader
            server.process.stdin.close()
        gate.open()
        assert server.process.wait(CAP) == (-signal.SIGTERM if way == "TERM" else 0)
        assert server.process.stderr is not None
        printed = [json.loads(line)["event"] for line in server.process.stderr]
        # The end of input may be seen before the answer has failed.
        assert printed in (["server.started"], ["server.started", "client.left"])
    assert entered(repo).git("status", "--porcelain") == ""
    left = command("worktree", "exit", "--action", "remove", "--session", "mine", cwd=repo.path)
    assert json.loads(left.stdout)["data"]["removed"] is True


def test_without_the_extra(repo: Repo, tmp_path: Path) -> None:
    """It is said what to install; help and other commands need nothing of it."""
    shadow = tmp_path / "shadow"
    for name in ("mcp", "mcp_types", "anyio"):
        (shadow / name).mkdir(parents=True)
        (shadow / name / "__init__.py").write_text(f"raise ModuleNotFoundError('No module named {name}')\n")
    environ = {"PYTHONPATH": str(shadow)}
    ended = command("mcp", cwd=repo.path, env=environ)
    assert (ended.status, ended.stdout) == (125, b"")
    [error] = ended.narration
    assert error["message"].startswith("mcp: the optional dependencies are not installed")
    assert "uv tool install '.[mcp]'" in error["hint"]
    for arguments in (("mcp", "--help"), ("worktree", "status")):
        assert command(*arguments, cwd=repo.path, env=environ).status == 0
