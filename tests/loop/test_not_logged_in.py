"""An agent without a login ends the loop at once, by its own words and nothing else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents import known
from ralph_wrap.agents.output import AgentFailure, OutputReader, UsageLimitReached
from ralph_wrap.loop.login_watch import LoginWatch
from tests.agents.capture import STREAMS
from tests.agents.reading import read
from tests.support.agent_script import PROMISE, TRUSTED, print_line, result_line, says
from tests.support.sessions import command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
    from tests.support.sessions import Result

SAID = "Not logged in · Please run /login"

LOGGED_OUT = print_line(
    {"type": "assistant", "message": {"model": "<synthetic>"}, "error": "authentication_failed"}
) + result_line(SAID, is_error=True)


def complaint(agent: str, path: Path, status: int) -> str:
    """Return what an agent says of its login, by what it has printed."""
    watch = LoginWatch(known(agent))
    errors = path.with_suffix(".err")
    watch.hear(errors.read_bytes() if errors.exists() else b"")
    printed = read(path) if path.exists() else []
    failures = [event for event in printed if isinstance(event, AgentFailure | UsageLimitReached)]
    return watch.complaint(status, failures[-1] if failures else None)


@pytest.mark.parametrize(
    ("agent", "case", "status", "said"),
    [
        ("claude", "no-login", 1, SAID),
        ("claude", "unauthorized", 1, "Invalid API key · Fix external API key"),
        ("claude", "expired", 1, "Failed to authenticate. API Error: 401 OAuth token has expired."),
        ("claude", "scope", 1, "Failed to authenticate. API Error: 403 OAuth token does not meet"),
        ("codex", "no-login", 1, "Missing environment variable: `SCRIPTED_KEY`."),
        ("codex", "unauthorized", 1, "unexpected status 401 Unauthorized: Missing bearer or basic"),
        ("opencode", "unauthorized", 1, "Incorrect API key provided: none."),
        ("copilot", "no-login", 1, "Error: No authentication information found."),
        ("copilot", "unauthorized", 1, "Authentication failed with provider at http"),
        ("kimi", "no-login", 1, "error: failed to run prompt: No model configured."),
        ("qwen", "no-login", 1, "Missing API key for OpenAI-compatible auth."),
        ("qwen", "unauthorized", 1, "Incorrect API key provided: none."),
        ("droid", "no-login", 1, "Error: Authentication failed. Please log in using /login"),
        ("droid", "unauthorized", 1, "Incorrect API key provided: none."),
        ("gemini", "no-login", 41, "When using Gemini API, you must specify the GEMINI_API_KEY"),
        ("gemini", "unauthorized", 145, "Request had invalid authentication credentials."),
        ("gemini", "wrong-key", 144, "API key not valid. Please pass a valid API key."),
    ],
)
def test_what_real_agents_print_without_a_login(agent: str, case: str, status: int, said: str) -> None:
    """Each of the captured outputs is understood, and its own words are what is told."""
    assert complaint(agent, STREAMS / agent / f"{case}.jsonl", status).startswith(said)


@pytest.mark.parametrize(
    ("agent", "case"), [(path.parent.name, path.stem) for path in sorted(STREAMS.glob("*/*.jsonl"))]
)
def test_no_other_output_of_a_real_agent_says_so(agent: str, case: str) -> None:
    """Negative control: answers, limits, overloads and broken connections."""
    is_one = case in {"no-login", "unauthorized", "expired", "scope", "wrong-key"}
    assert bool(complaint(agent, STREAMS / agent / f"{case}.jsonl", 41 if is_one else 1)) is is_one


@pytest.mark.parametrize(
    "said",
    [
        "Your access token could not be refreshed because your refresh token was revoked. Please log out",
        "Your authentication session could not be refreshed automatically. Please log out and sign in again.",
    ],
)
def test_a_login_of_codex_that_cannot_be_refreshed(said: str) -> None:
    """It says so without a status of the service; the words stand in its program."""
    failed = {"type": "turn.failed", "error": {"message": said}}
    (event,) = OutputReader("codex").feed(json.dumps(failed).encode() + b"\n")
    assert isinstance(event, AgentFailure)
    assert LoginWatch(known("codex")).complaint(1, event)
    echoed = AgentFailure(f"The request is invalid: {said}")
    assert LoginWatch(known("codex")).complaint(1, echoed) == ""


def test_opencode_without_a_key() -> None:
    """Its own name for that error."""
    error = {"name": "ProviderAuthError", "data": {"providerID": "anthropic", "message": "no key"}}
    (event,) = OutputReader("opencode").feed(json.dumps({"type": "error", "error": error}).encode() + b"\n")
    assert event == AgentFailure("no key", logged_out=True)


@pytest.mark.parametrize(
    ("status", "stderr", "said"),
    [
        (41, b"\x1b[31mno\x1b[0m \x07key\n", "no key"),
        (41, b"", "it ended with status 41"),
        (1, b"Invalid auth method selected.\n", "Invalid auth method selected."),
        (0, b"Invalid auth method selected.\n", ""),
        (1, b"Invalid auth method selected.\nsomething else\n", ""),
        (1, b"x: Invalid auth method selected.\n", ""),
    ],
)
def test_what_counts_on_stderr(status: int, stderr: bytes, said: str) -> None:
    """An exit status of its own, or the beginning of the last line with a failure; no control character."""
    watch = LoginWatch(known("gemini"))
    watch.hear(stderr)
    assert watch.complaint(status, None) == said


KIMI = b"error: failed to run prompt: %s\nSee log: /home/kimi.log\n"
CLASSIC = b"""\
Error: Classic Personal Access Tokens (ghp_) are not supported by Copilot.

The GH_TOKEN environment variable contains a classic PAT.
Please use a Fine-Grained Personal Access Token or another authentication method.

To fix this, you can:
  \xe2\x80\xa2 Replace the token in GH_TOKEN with a fine-grained PAT
"""


@pytest.mark.parametrize(
    ("agent", "stderr", "said"),
    [
        ("copilot", CLASSIC, "Error: Classic Personal Access Tokens (ghp_) are not supported by Copilot."),
        (
            "kimi",
            KIMI % b"provider k has no credential configured",
            "error: failed to run prompt: provider k",
        ),
        (
            "kimi",
            KIMI % b"provider.auth_error: 401 Incorrect key.",
            "error: failed to run prompt",
        ),
        ("kimi", KIMI % b'Model "x" is not configured in config.toml.', ""),
        ("kimi", KIMI % b'Session "x" not found.', ""),
    ],
)
def test_what_else_counts_as_a_login_and_what_does_not(agent: str, stderr: bytes, said: str) -> None:
    """A token of a kind that is not taken, a key that is refused or missing; no other mistake of a user."""
    watch = LoginWatch(known(agent))
    watch.hear(stderr)
    found = watch.complaint(1, None)
    assert (found.startswith(said), bool(found)) == (True, bool(said))


@pytest.mark.parametrize("agent", ["copilot", "kimi"])
def test_an_error_of_several_lines_counts_whole_and_at_the_end(agent: str) -> None:
    """Negative control: quoted, cut, followed by another line, a success, or with a failure in the stream."""
    errors = (STREAMS / agent / "no-login.err").read_bytes()
    first, rest = errors.split(b"\n", 1)

    def said(stderr: bytes, status: int = 1, failure: AgentFailure | None = None) -> str:
        watch = LoginWatch(known(agent))
        watch.hear(stderr)
        return watch.complaint(status, failure)

    for stderr in (errors, b"npm warn old\n" + errors, b"\n\x1b[31m" + first + b"\x1b[39m\n" + rest):
        assert said(stderr) == first.decode()
    for stderr in (b"Fix: " + errors, first, rest, errors + b"FAILED 1 test\n", first + b"\nx\n" + rest):
        assert said(stderr) == ""
    assert (said(errors, 0), said(errors, failure=AgentFailure("it failed"))) == ("", "")


def test_the_session_ends_at_once_with_the_words_of_the_agent(mine: Callable[..., Result]) -> None:
    """One iteration instead of five failures, and a status of its own."""
    result = mine(f"echo x > x\n{LOGGED_OUT}exit 1")
    assert result.ending == ("not-logged-in", 1, 77)
    assert result.report["error"] == SAID
    assert result.report["saved_paths"] == ["x"]
    (warning,) = [event for event in result.warnings if event["event"] == "agent.not_logged_in"]
    assert warning["message"] == f"mine is not logged in: {SAID}"


def test_a_401_of_the_service_ends_the_session_at_any_iteration(mine: Callable[..., Result]) -> None:
    """A token may end in the middle of the night."""
    failed = result_line("API Error: 401", is_error=True, api_error_status=401)
    body = f'[ "$RALPH_ITERATION" = 1 ] && {{ echo x > x\n{result_line("On.")}exit 0; }}\n{failed}exit 1'
    assert mine(body).ending == ("not-logged-in", 2, 77)


@pytest.mark.parametrize(
    "body",
    [
        f"{says(SAID)}{result_line(SAID)}",
        f"{says(SAID)}{result_line('It failed', is_error=True)}exit 1",
        f"{result_line(f'API Error: 400 messages.3: {SAID}', is_error=True, api_error_status=400)}exit 1",
        f"echo '{SAID}' >&2\nexit 1",
        f"echo '{SAID}'\nexit 1",
    ],
    ids=["answer", "before-a-failure", "in-an-error", "stderr", "stdout"],
)
def test_such_words_elsewhere_do_not_count(mine: Callable[..., Result], body: str) -> None:
    """A project whose prompt, tools or tests have these words: the session goes on, or fails as ever."""
    result = mine(body, "-n", "2", "-p", f"Fix the message: {SAID}", "--max-failures", "2")
    assert (result.report["iterations"], "agent.not_logged_in" in result.names) == (2, False)
    assert result.report["ended_by"] in {"max-iterations", "max-failures"}


def test_the_exit_report_says_what_to_do(repo: Repo, script: Callable[[str], str]) -> None:
    """The agent's words, how to log it in, and the command to go on then."""
    agent = script(f"{LOGGED_OUT}exit 1")
    repo.write(".ralph/config.toml", f"[agents.claude]\ncommand = ['{agent}']\n")
    result = run(repo.path, "-a", "claude", "-p", "x", env={**TRUSTED, "RALPH_WRAP_LOG_FORMAT": "text"})
    assert result.status == 77
    assert f"agent said  {SAID}".split() in [line.split() for line in result.stderr.splitlines()]
    for words in (
        "not logged in after 1 iteration (exit status 77)",
        "claude setup-token",
        "ralph-wrap doctor",
    ):
        assert words in result.stderr
    assert f"ralph-wrap resume {result.report['id']}" in result.stderr


def test_resume_goes_on_after_the_login(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """--all counts it among the interrupted ones."""
    agent = script(f"[ -e {tmp_path}/login ] && {{ {result_line(PROMISE)}exit 0; }}\n{LOGGED_OUT}exit 1")
    repo.write(".ralph/config.toml", f"[agents.mine]\ncommand = ['{agent}']\noutput = 'claude'\n")
    assert run(repo.path, "-a", "mine", "-p", "x", env=TRUSTED).status == 77
    (tmp_path / "login").touch()
    assert command("resume", "--all", cwd=repo.path, env=TRUSTED).status == 0

    def has_ended() -> bool:  # in the background
        reports = map(Path.read_text, repo.path.glob(".ralph/run/sessions/*/report.json"))
        return {json.loads(text)["ended_by"] for text in reports} == {"not-logged-in", "promise"}

    eventually(has_ended, "the resumed session to end")


def test_a_batch_starts_no_more_tasks(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """Each of them would find the same; typed again after the login, it goes on with all."""
    agent = script(f"[ -e {tmp_path}/login ] && {{ {result_line(PROMISE)}exit 0; }}\n{LOGGED_OUT}exit 1")
    repo.write(".ralph/config.toml", f"[agents.mine]\ncommand = ['{agent}']\noutput = 'claude'\n")
    tasks = repo.write("../TODO.md", "- [ ] one\n- [ ] two\n- [ ] three\n")
    words = ("batch", str(tasks), "-j", "1", "-a", "mine", "--json")
    first = command(*words, cwd=repo.path, env=TRUSTED)
    rows = json.loads(first.stdout)["data"]
    assert (first.status, [row["ended_by"] for row in rows]) == (77, ["not-logged-in", None, None])
    (tmp_path / "login").touch()
    again = command(*words, cwd=repo.path, env=TRUSTED)
    assert (again.status, [row["done"] for row in json.loads(again.stdout)["data"]]) == (0, [True] * 3)
