"""The gate: a promise counts only if a command passes, and the agent is told why it did not."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.loop.gate import excerpt
from tests.support.processes import left
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

DONE = "<promise>COMPLETE</promise>"
PROMISE = f"echo '{DONE}'"
SH = ("--", "sh", "-c")


def ended(events: list[dict[str, Any]]) -> list[tuple[int, str | None]]:
    """Return status and cut of each run of the gate."""
    return [(event["status"], event["cut"]) for event in events if event["event"] == "verify.ended"]


# What counts


def test_a_promise_counts_if_the_gate_passes(repo: Repo) -> None:
    """The loop ends with it, and the report says that it is proven."""
    result = run(repo.path, "--verify", "test -e proof", *SH, f"echo x > proof; {PROMISE}")
    assert result.ending == ("promise", 1, 0)
    verify = result.report["verify"]
    assert verify["seconds"] >= 0
    assert {key: verify[key] for key in verify if key != "seconds"} == {
        "result": "passed",
        "command": "test -e proof",
        "runs": 1,
        "iteration": 1,
        "status": 0,
    }


def test_a_promise_does_not_count_if_the_gate_fails(repo: Repo) -> None:
    """The loop goes on until it does."""
    agent = f'echo x >> work; test "$RALPH_ITERATION" -lt 3 || echo > proof; {PROMISE}'
    result = run(repo.path, "--verify", "test -e proof", *SH, agent)
    assert result.ending == ("promise", 3, 0)
    assert ended(result.events) == [(1, None), (1, None), (0, None)]
    failed = [line["message"] for line in result.warnings]
    assert failed[0] == "verify ended with status 1, so the promise does not count"


def test_the_last_iteration_allowed_needs_it_too(repo: Repo) -> None:
    """A limit is no proof."""
    result = run(repo.path, "-n", "1", "--verify", "false", *SH, f"echo x > x; {PROMISE}")
    assert result.ending == ("max-iterations", 1, 0)
    assert result.report["verify"]["result"] == "failed"


def test_promises_without_work_are_stalls(repo: Repo) -> None:
    """Also where the gate itself writes files."""
    result = run(repo.path, "--max-stalls", "2", "--verify", "date +%N > junk; false", *SH, PROMISE)
    assert result.ending == ("max-stalls", 2, 0)


def test_without_a_promise_it_does_not_run(repo: Repo) -> None:
    """And the report says so."""
    result = run(repo.path, "-n", "2", "--verify", "touch ran", *SH, "echo x >> work")
    assert result.ending == ("max-iterations", 2, 0)
    assert (result.report["verify"]["result"], result.report["verify"]["runs"]) == ("not run", 0)
    assert "verify.started" not in result.names


def test_a_failed_promise_is_no_promise(repo: Repo) -> None:
    """An agent that fails has not finished; the gate is spared."""
    result = run(repo.path, "-n", "1", "--verify", "touch $RALPH_PROJECT/ran", *SH, f"{PROMISE}; exit 3")
    assert result.status == 3
    assert not (repo.path / "ran").exists()


def test_each_iteration_that_changes_something(repo: Repo) -> None:
    """With --verify-each, also without a promise; one that changed nothing proves nothing new."""
    agent = 'test "$RALPH_ITERATION" = 2 || echo x >> work'
    result = run(repo.path, "-n", "3", "--verify", "true", "--verify-each", *SH, agent)
    assert [event["iteration"] for event in result.events if event["event"] == "verify.passed"] == [1, 3]
    assert result.report["verify"]["result"] == "passed"


def test_work_after_the_last_run_is_not_proven(repo: Repo) -> None:
    """The report does not call it so."""
    agent = f"echo x >> work; test $RALPH_ITERATION -gt 1 || {PROMISE}"
    result = run(repo.path, "-n", "2", "--verify", "false", *SH, agent)
    assert result.report["verify"]["result"] == "not run"
    assert (result.report["verify"]["iteration"], result.report["verify"]["status"]) == (1, 1)


# What the agent is told


def test_the_next_prompt_ends_with_the_output(repo: Repo) -> None:
    """Clearly marked, after the prompt; and only the next one."""
    agent = (
        'cat > "$RALPH_PROJECT/given-$RALPH_ITERATION"; echo x >> w;'
        f" test $RALPH_ITERATION -gt 1 || {PROMISE}"
    )
    verify = "echo 'one test failed'; echo 'on stderr' >&2; exit 4"
    run(repo.path, "-n", "3", "-p", "Do it.", "--verify", verify, *SH, agent)
    first, second, third = ((repo.path / f"given-{number}").read_text() for number in (1, 2, 3))
    assert (first, third) == ("Do it.", "Do it.")
    assert second == (
        "Do it.\n"
        "\n"
        "---- ralph-wrap: the check of your work did not pass ----\n"
        "The task is done only when this command, run in this workspace, ends with status 0:\n"
        "\n"
        f"    {verify}\n"
        "\n"
        "After the last iteration it ended with status 4. The end of its output:\n"
        "\n"
        "one test failed\n"
        "on stderr\n"
        "---- end of the output of the check ----\n"
    )


def test_an_agent_that_fails_gets_it_again(repo: Repo) -> None:
    """It may not have read it."""
    agent = (
        'cat > "$RALPH_PROJECT/given-$RALPH_ITERATION"; echo x >> w;'
        f' test "$RALPH_ITERATION" != 2 || exit 1; {PROMISE}'
    )
    run(repo.path, "-n", "3", "-p", "Do it.", "--verify", "echo failed; false", *SH, agent)
    assert "\nfailed\n" in (repo.path / "given-3").read_text()


def test_an_answer_that_repeats_it_keeps_no_promise(repo: Repo) -> None:
    """The output of the gate can have the text of the promise."""
    agent = f"test $RALPH_ITERATION != 1 || {PROMISE}; echo x >> w; cat"
    verify = f"echo 'expected:'; {PROMISE}; false"
    result = run(repo.path, "-n", "2", "-p", "Do it.", "--verify", verify, *SH, agent)
    assert ended(result.events) == [(1, None)]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"", ""),
        (b"a\nb\n\n\n", "a\nb"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text\x00\x08\n", "red text"),
        (b" 10%\r 50%\r100%\r\n", "100%"),
        (b"caf\xc3\xa9 \xff\n", "caf\u00e9 \ufffd"),
        (b"".join(b"%d\n" % number for number in range(300)), "\n".join(map(str, range(100, 300)))),
    ],
)
def test_the_output_is_plain_text(output: bytes, shown: str) -> None:
    """The last 200 lines, without what only a terminal understands."""
    assert excerpt(output) == shown


def test_the_middle_of_a_long_output_is_cut() -> None:
    """Its beginning often says what is wrong, its end how much."""
    shown = excerpt(b"first\n" + b"x" * 100_000 + b"\nlast\n")
    assert len(shown.encode()) < 17 << 10
    assert shown.startswith("first\n")
    assert shown.endswith("\nlast")
    assert "\n[\u2026 83,627 bytes are left out here \u2026]\n" in shown


# Where it runs


def test_it_runs_as_the_agent_does(repo: Repo) -> None:
    """In its directory and environment."""
    repo.write("web/index.js")
    repo.commit("web")
    env = "env | grep -v -e ^_= -e ^SHLVL= | sort"
    verify = f"pwd > ../gate; {env} >> ../gate; diff ../gate ../agent"
    agent = f"pwd > ../agent; {env} >> ../agent; {PROMISE}"
    result = run(repo.path, "-n", "1", "--verify", verify, *SH, agent, cwd=repo.path / "web")
    assert result.ending == ("promise", 1, 0), result.stderr


def test_its_output_is_not_the_agents(repo: Repo) -> None:
    """Our stdout has the agent's alone; the log has both."""
    result = run(repo.path, "--verify", "echo tested; echo warned >&2", *SH, PROMISE)
    assert result.stdout.decode() == f"{DONE}\n"
    assert result.output_log.decode() == f"{DONE}\ntested\nwarned\n"


def test_it_runs_in_the_project_itself(repo: Repo) -> None:
    """There it proves as much as elsewhere."""
    assert run(repo.path, "--isolation", "off", "--verify", "true", *SH, PROMISE).ending == ("promise", 1, 0)


def test_what_it_leaves_running_ends_with_it(repo: Repo, home: Path) -> None:
    """But not what the agent left: that runs until the session ends."""
    agent = (
        "test $RALPH_ITERATION -gt 1 || { sleep 600 & echo $! > server; };"
        f" echo x >> work; kill -0 $(cat server) && {PROMISE}"
    )
    verify = "sleep 600 & echo $! >> gates; test $RALPH_ITERATION -gt 1 && ! kill -0 $(head -n 1 gates)"
    result = run(repo.path, "-n", "3", "--verify", verify, *SH, agent)
    assert result.ending == ("promise", 2, 0), result.stderr
    assert left(home) == {}


# Its limits


def test_it_has_a_time_limit(repo: Repo, home: Path) -> None:
    """Its end is a failure, which the agent is told."""
    result = run(
        *(repo.path, "-n", "1", "--verify", "sleep 600 & sleep 600", "--verify-timeout", "200ms"),
        *(*SH, f"echo x > x; {PROMISE}"),
    )
    assert ended(result.events) == [(124, "verify-timeout")]
    assert result.report["verify"]["result"] == "failed"
    assert left(home) == {}


def test_the_sessions_time_is_its_time(repo: Repo) -> None:
    """The loop ends as by an agent that is cut short."""
    result = run(repo.path, "--max-time", "3s", "--verify", "exec sleep 600", *SH, f"echo x > x; {PROMISE}")
    assert result.ending == ("max-time", 1, 124)
    assert result.report["verify"]["result"] == "not run"


def test_a_signal_ends_it(repo: Repo, home: Path) -> None:
    """And the session with it; the work is saved."""
    with Session(repo.path, "--verify", "exec sleep 600", *SH, f"echo x > x; {PROMISE}") as session:
        session.wait_for("verify.started")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert result.ending == ("signal", 1, 143)
    assert result.report["verify"]["result"] == "not run"
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"
    assert left(home) == {}


def test_a_request_to_stop_ends_it(repo: Repo) -> None:
    """As it ends an agent."""
    with Session(repo.path, "--verify", "exec sleep 600", *SH, f"echo x > x; {PROMISE}") as session:
        session.wait_for("verify.started")
        assert command("stop", "--all", cwd=repo.path).status == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)


# Where it comes from


def configure(repo: Repo, **rows: Any) -> None:
    """Write the configuration of the project."""
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))


def test_the_project_may_bring_it_with_approval(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every command of a project; one that is typed needs none."""
    configure(repo, verify="touch $RALPH_PROJECT/ran")
    refused = run(repo.path, *SH, PROMISE)
    assert refused.status == 125
    assert "settings that you have not approved: verify" in refused.stderr
    assert run(repo.path, "--verify", "true", *SH, PROMISE).ending == ("promise", 1, 0)
    assert not (repo.path / "ran").exists()
    monkeypatch.setenv("RALPH_TRUST", "1")
    assert run(repo.path, *SH, PROMISE).ending == ("promise", 1, 0)
    assert (repo.path / "ran").exists()


@pytest.mark.parametrize(
    ("commands", "passes"),
    [
        (["true", "true"], True),
        (["true || false", "true"], True),
        (["false || false", "true"], False),
        (["false && true", "true"], False),
        (["true # why", "false"], False),
        (["cat <<END\nx\nEND", "true"], True),
        (["cd /; test -d usr", "test ! -d usr"], True),
        ([], True),
    ],
)
def test_a_list_is_a_row_of_commands(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, commands: list[str], *, passes: bool
) -> None:
    """Each has to pass; none changes the directory of the next."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    configure(repo, verify=commands)
    result = run(repo.path, "-n", "1", *SH, f"echo x > x; {PROMISE}")
    assert result.ending == ("promise" if passes else "max-iterations", 1, 0), result.stderr


def test_verify_each_needs_a_gate(repo: Repo) -> None:
    """What was typed and cannot be had is an error."""
    result = command("run", "--verify-each", *SH, "true", cwd=repo.path)
    assert result.status == 2
    assert "--verify-each: there is no command to run" in result.stderr


def test_resume_has_it_again(repo: Repo) -> None:
    """As every option of the session."""
    first = run(repo.path, "-n", "1", "--verify", "test -e proof", *SH, f"echo x >> x; {PROMISE}")
    assert first.ending == ("max-iterations", 1, 0)
    again = command("resume", first.report["id"], cwd=repo.path, env={"RALPH_WRAP_MAX_ITERATIONS": "1"})
    assert again.status == 0, again.stderr
    reports = sorted((repo.path / ".ralph/run/sessions").glob("*/report.json"))
    assert [json.loads(path.read_text())["verify"]["result"] for path in reports] == ["failed", "failed"]


def test_the_gate_may_be_the_check_of_a_landing(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it approves there is the text of the gate."""
    result = run(repo.path, *SH, "echo x > x; git add x; git commit -qm x")
    configure(repo, check="verify", verify="test -e y")
    refused = command("merge", result.report["id"], cwd=repo.path)
    assert "not approved: check, verify" in refused.stderr
    monkeypatch.setenv("RALPH_TRUST", "1")
    failed = command("merge", result.report["id"], cwd=repo.path)
    assert failed.status == 6
    configure(repo, check="verify", verify="test -e x")
    assert command("merge", result.report["id"], cwd=repo.path).status == 0
    configure(repo, check="verify")
    assert "the key verify is missing" in command("merge", result.report["id"], cwd=repo.path).stderr


# What review shows


def test_review_shows_the_result(repo: Repo) -> None:
    """A column of its own, which only projects with a gate have."""
    for verify, agent in (("true", PROMISE), ("false", PROMISE), ("true", "true")):
        work = f"echo x > $RALPH_AGENT_ID; git add .; git commit -qm x; {agent}"
        run(repo.path, "-n", "1", "--verify", verify, *SH, work)
    shown = command("review", cwd=repo.path).stdout.decode()
    assert " VERIFY " in shown
    rows = json.loads(command("review", "--json", cwd=repo.path).stdout)["data"]
    assert sorted(row["verify"] for row in rows) == ["failed", "not run", "passed"]


@pytest.mark.parametrize(("options", "kinds"), [(("--verify", "true"), ["tests"]), ((), [])])
def test_review_names_changed_tests(repo: Repo, options: tuple[str, ...], kinds: list[str]) -> None:
    """If there is a gate that runs them."""
    work = "mkdir tests; echo x > tests/test_x.py; git add .; git commit -qm x"
    run(repo.path, "-n", "1", *options, *SH, work)
    [row] = json.loads(command("review", "--json", cwd=repo.path).stdout)["data"]
    assert [touch["kind"] for touch in row["touches"]] == kinds


def test_the_configured_gate_names_changed_tests_too(repo: Repo) -> None:
    """Also for branches of sessions that had none."""
    run(repo.path, "-n", "1", *SH, "echo x > test_x.py; git add .; git commit -qm x")
    configure(repo, verify="make test")
    [row] = json.loads(command("review", "--json", cwd=repo.path).stdout)["data"]
    assert row["touches"] == [{"path": "test_x.py", "kind": "tests"}]


@pytest.mark.parametrize("start", ["run", "spawn", "batch"])
def test_each_kind_of_session_has_it(repo: Repo, start: str) -> None:
    """Not run alone."""
    repo.write("tasks", "- [ ] one\n")
    words = ("--verify", "test -e proof", *SH, f"cat > proof; {PROMISE}")
    options = ("tasks",) if start == "batch" else ("-p", "x")
    begun = command(start, *options, *words, cwd=repo.path)
    assert begun.status == 0, begun.stderr
    if start == "spawn":
        assert command("wait", begun.stdout.decode().strip(), cwd=repo.path).status == 0
    [report] = (repo.path / ".ralph/run/sessions").glob("*/report.json")
    assert json.loads(report.read_text())["verify"]["result"] == "passed"
