"""``fallback``: while the usage limit of one agent holds, the loop goes on with the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.agents import with_agent
from ralph_wrap.config import Settings
from ralph_wrap.config.settings import AgentTable
from ralph_wrap.errors import UsageError
from ralph_wrap.state import agent_shares
from tests.loop.test_not_logged_in import LOGGED_OUT
from tests.support.agent_script import PROMISE, TRUSTED, limited, result_line
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
    from tests.support.sessions import Result

DONE = result_line(PROMISE)


def configure(repo: Repo, script: Callable[[str], str], **agents: str) -> None:
    """Give a project agents, each a script; all but the first one are the fallback, in this order."""
    first, *others = agents
    lines = [f"agent = '{first}'", f"fallback = {json.dumps(others)}"]
    for name, body in agents.items():
        lines += [f"[agents.{name}]", f"command = [{json.dumps(script(body))}]", "output = 'claude'"]
    repo.write(".ralph/config.toml", "\n".join(lines) + "\n")


def work(repo: Repo, *options: str) -> Result:
    """Run a session of these agents."""
    return run(repo.path, "-p", "do it", *options, env=TRUSTED)


def agents_of(result: Result, event: str = "iteration.started") -> list[tuple[int, str]]:
    """Return number and agent of each iteration."""
    return [(entry["iteration"], entry["agent"]) for entry in result.events if entry["event"] == event]


def test_the_next_agent_does_the_same_iteration(repo: Repo, script: Callable[[str], str]) -> None:
    """Nothing has counted, nobody has waited, and log, cost and report say who it was."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=f"echo x > x\n{DONE}")
    result = work(repo, "-n", "1", "--max-failures", "1")
    assert result.ending == ("promise", 1, 0)
    assert agents_of(result) == [(1, "first"), (1, "second")]
    assert "limit.waiting" not in result.names
    reported = [event["agent"] for event in result.events if event["event"] == "agent.reported"]
    assert reported == ["first", "second"]
    assert result.report["agents"] == [
        {"agent": "first", "iterations": 0, "tokens": 123, "cost_usd": 0.25},
        {"agent": "second", "iterations": 1, "tokens": 123, "cost_usd": 0.25},
    ]
    assert (result.report["agent"], result.report["cost_usd"]) == ("first", 0.5)
    (changed,) = [event for event in result.events if event["event"] == "agent.changed"]
    assert changed["message"].endswith("iteration 1 goes on with second")


def test_the_loop_returns_when_the_limit_has_ended(
    repo: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """To the first agent, which then keeps its promise."""
    first = f"[ -e {tmp_path}/again ] && {{ {DONE}exit 0; }}\ntouch {tmp_path}/again\n{limited(4)}exit 1"
    configure(repo, script, first=first, second=f"echo x >> x\n{result_line('On.')}sleep 1")
    result = work(repo)
    names = [name for _, name in agents_of(result)]
    assert (result.report["ended_by"], names[0], names[-1]) == ("promise", "first", "first")
    assert set(names[1:-1]) == {"second"}
    assert [event["agent"] for event in result.events if event["event"] == "agent.changed"] == [
        *("second", "first")
    ]


def test_a_limit_without_an_end_is_tried_again_less_and_less(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """The work of another agent in between does not begin the row anew."""
    configure(repo, script, first=f"{limited(None)}exit 1", second=f"echo x >> x\n{result_line('On.')}")
    result = work(repo, "-n", "3")
    assert agents_of(result) == [(1, "first"), (1, "second"), (2, "second"), (3, "second")]


def test_without_an_agent_that_can_go_on_it_waits_for_the_first_limit_to_end(
    repo: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """Here that of the second agent, which then does the iteration."""
    second = f"[ -e {tmp_path}/again ] && {{ {DONE}exit 0; }}\ntouch {tmp_path}/again\n{limited(2)}exit 1"
    configure(repo, script, first=f"{limited(3600)}exit 1", second=second)
    result = work(repo, "-n", "1")
    assert result.ending == ("promise", 1, 0)
    assert [name for _, name in agents_of(result)] == ["first", "second", "second"]
    assert result.names.count("limit.waiting") == 1


def test_a_limit_that_another_session_has_found_needs_no_try(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """The second session begins with the second agent, and says why."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=DONE)
    work(repo, "-n", "1")
    result = work(repo, "-n", "1")
    assert agents_of(result) == [(1, "second")]
    assert result.names.count("agent.changed") == 1


def test_an_agent_that_is_not_logged_in_gets_no_second_turn(repo: Repo, script: Callable[[str], str]) -> None:
    """It is told once, and the next one does the iteration."""
    configure(
        repo,
        script,
        first=f"{limited(3600)}exit 1",
        second=f"{LOGGED_OUT}exit 1",
        third=f"echo x >> x\n{result_line('On.')}",
    )
    result = work(repo, "-n", "2", "--max-failures", "1")
    assert result.ending == ("max-iterations", 2, 0)
    assert agents_of(result) == [(1, "first"), (1, "second"), (1, "third"), (2, "third")]
    assert [event["agent"] for event in result.warnings if event["event"] == "agent.not_logged_in"] == [
        "second"
    ]


def test_a_person_hears_of_each_change(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """Its command gets the sentence that the log has, at the event usage-limit, and the shares at the end."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=DONE)
    path = repo.path / ".ralph/config.toml"
    told = f"notify = 'echo \"$RALPH_EVENT $RALPH_SUMMARY\" >> {tmp_path}/told'\n"
    path.write_text(told + path.read_text())
    assert work(repo, "-n", "1").ending == ("promise", 1, 0)
    changed, end = (tmp_path / "told").read_text().splitlines()
    assert changed.startswith("usage-limit ")
    assert changed.endswith("iteration 1 goes on with second")
    assert end.endswith("(first 0 iterations, $0.25; second 1 iteration, $0.25)")


def test_the_first_agent_without_a_login_ends_the_session(repo: Repo, script: Callable[[str], str]) -> None:
    """A fallback is for limits: nobody should pay another account for a forgotten login."""
    configure(repo, script, first=f"{LOGGED_OUT}exit 1", second=DONE)
    assert work(repo).ending == ("not-logged-in", 1, 77)


def test_an_agent_that_is_not_installed_is_left_out_with_a_warning(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """At the start, not in the middle of the night."""
    configure(repo, script, first=DONE, second=DONE)
    path = repo.path / ".ralph/config.toml"
    path.write_text(path.read_text().replace('fallback = ["second"]', 'fallback = ["gone", "second"]'))
    with path.open("a") as file:
        file.write("[agents.gone]\ncommand = ['/nowhere/gone']\n")
    result = work(repo)
    assert result.ending == ("promise", 1, 0)
    assert [event["message"] for event in result.warnings if event["event"] == "fallback.ignored"] == [
        "no effect: fallback gone: agent command /nowhere/gone was not found"
    ]


def test_ps_shows_which_agent_works(repo: Repo, script: Callable[[str], str]) -> None:
    """In place of which other one; the record keeps the first agent, with which resume goes on."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second="echo begun\nexec sleep 600")
    with Session(repo.path, "-p", "x", env=TRUSTED) as session:
        session.wait_for("agent.changed")
        (row,) = json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]
        table = command("ps", cwd=repo.path).stdout.decode()
        command("stop", "--all", cwd=repo.path)
        session.finish()
    assert (row["agent"], row["agent_now"], row["waits_until"]) == ("first", "second", None)
    assert "second for first" in table


def test_the_report_of_a_killed_session_has_the_shares(repo: Repo, script: Callable[[str], str]) -> None:
    """From its event log; the iteration that the kill has cut short counts, as in the whole report."""
    body = f'[ "$RALPH_ITERATION" = 3 ] && exec sleep 600\necho x >> x\n{result_line("On.")}'
    configure(repo, script, first=f"{limited(3600)}exit 1", second=body)
    with Session(repo.path, "-p", "x", env=TRUSTED) as session:
        session.wait_for("iteration.started", 4)
        session.process.kill()
        session.process.wait()
        swept = command("sweep", cwd=repo.path)
        report = json.loads((session.directory / "report.json").read_text())
    assert (swept.status, report["ended_by"], report["iterations"]) == (0, "killed", 3)
    assert report["agents"] == [
        {"agent": "first", "iterations": 0, "tokens": 123, "cost_usd": 0.25},
        {"agent": "second", "iterations": 3, "tokens": 246, "cost_usd": 0.5},
    ]


def test_an_agent_cannot_break_the_shares(tmp_path: Path) -> None:
    """Negative control: lines of any form, numbers of any size, a line that is cut, and no log at all."""
    started = {"event": "iteration.started", "agent": "first", "iteration": 1}
    reported = {"event": "agent.reported", "agent": "second", "tokens": 1, "cost_usd": 0.5}
    junk = [7, started | {"iteration": []}, started | {"agent": {}}, started | {"agent": "x" * 5000}]
    junk += [reported | {"tokens": tokens} for tokens in ("1", -1, 10**4000, float("nan"))]
    lines = [json.dumps(line) for line in (started, *junk, reported, reported | {"cost_usd": 10**400})]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join([*lines, '{"event": "agent.re']))
    assert agent_shares.read(tmp_path) == (
        {"agent": "first", "iterations": 1, "tokens": None, "cost_usd": None},
        {"agent": "second", "iterations": 0, "tokens": 2, "cost_usd": 0.5},
    )
    path.write_text(json.dumps(started))
    assert agent_shares.read(tmp_path) is None
    path.write_text("".join(json.dumps(started | {"agent": f"a{n}"}) + "\n" for n in range(1000)))
    assert agent_shares.read(tmp_path) is None
    path.unlink()
    assert agent_shares.read(tmp_path) is None


def test_a_batch_goes_on_with_its_tasks(repo: Repo, script: Callable[[str], str]) -> None:
    """A limit with a fallback starts no pause."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=DONE)
    tasks = repo.write("../TODO.md", "- [ ] one\n- [ ] two\n")
    batch = command("batch", str(tasks), "-j", "1", "--json", cwd=repo.path, env=TRUSTED)
    assert (batch.status, [row["done"] for row in json.loads(batch.stdout)["data"]]) == (0, [True, True])


@pytest.mark.parametrize(
    ("options", "other"), [((), "second"), (("--fallback", "third"), "third")], ids=["configured", "typed"]
)
def test_a_session_in_the_background_has_it(
    repo: Repo, script: Callable[[str], str], options: tuple[str, ...], other: str
) -> None:
    """Of the configuration, or typed at spawn, which counts more."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=DONE, third=DONE)
    spawned = command("spawn", "-p", "x", "-n", "1", *options, cwd=repo.path, env=TRUSTED)
    assert spawned.status == 0, spawned.stderr
    assert command("wait", spawned.stdout.decode().strip(), cwd=repo.path).status == 0
    (path,) = repo.path.glob(".ralph/run/sessions/*/report.json")
    report = json.loads(path.read_text())
    shares = [(entry["agent"], entry["iterations"]) for entry in report["agents"]]
    assert (report["ended_by"], shares) == ("promise", [("first", 0), (other, 1)])


def test_a_resumed_session_has_it_again(repo: Repo, script: Callable[[str], str]) -> None:
    """Typed as an option, more than once."""
    configure(repo, script, first=f"{limited(3600)}exit 1", second=f"{LOGGED_OUT}exit 1", third=DONE)
    path = repo.path / ".ralph/config.toml"
    path.write_text(path.read_text().replace('fallback = ["second", "third"]\n', ""))
    typed = work(repo, "--fallback", "second", "--fallback", "third", "-n", "1")
    assert [name for _, name in agents_of(typed)] == ["first", "second", "third"]
    resumed = command("resume", typed.report["id"], "--again", cwd=repo.path, env=TRUSTED)
    assert resumed.status == 0, resumed.stderr
    assert '"agent": "third"' in resumed.stderr


# Settings


def chosen(**changed: Any) -> Settings:
    """Return settings with their agents."""
    return with_agent(Settings(project=Path(), command=(), prompt="x", **changed))


def test_what_belongs_to_the_first_agent_is_not_given_to_another() -> None:
    """Its model, arguments and conversation; what the configuration says of the other one is."""
    table = AgentTable(command=("gemini", "-m", "flash"))
    settings = chosen(
        agent="claude",
        model="opus",
        agent_arg=("--betas", "x"),
        fallback=("codex", "claude", "gemini", "codex"),
        agents=(("gemini", table),),
    )
    assert settings.command[-4:] == ("--model", "opus", "--betas", "x")
    assert [choice.agent for choice in settings.others] == ["codex", "gemini"]
    codex, gemini = settings.others
    assert codex.command == chosen(agent="codex").command
    assert (codex.invocation.resume, codex.invocation.output) == (("resume", "{session}"), "codex")
    assert gemini.command == ("gemini", "-m", "flash")


def test_an_unknown_fallback_is_a_mistake() -> None:
    """With the names that are known."""
    with pytest.raises(UsageError, match="unknown agent 'codx'"):
        chosen(agent="claude", fallback=("codx",))


def test_a_command_has_no_fallback(repo: Repo) -> None:
    """Nobody knows its limits; what the project says for its own agent does not count then."""
    [refused] = command("run", "--fallback", "codex", "--", "true", cwd=repo.path).narration
    assert refused["hint"] == "name the agent: ralph-wrap run --agent NAME --fallback codex"
    repo.write(".ralph/config.toml", 'agent = "claude"\nfallback = ["codex"]\n')
    assert run(repo.path, "-n", "1", "--", "true").ending == ("max-iterations", 1, 0)
