"""Bad input: a clear error, the right exit status, and nothing created."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.agent_script import TRUSTED
from tests.support.directory_listing import listing
from tests.support.histories import grow
from tests.support.sessions import PROGRAM, command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("ended")


HELP = "see ralph-wrap run --help"


def _refused(repo: Repo, *arguments: str | os.PathLike[str], **options: Any) -> Result:
    """Run what is to be refused, and check that nothing was created or changed."""
    before = listing(repo.path)
    result = run(repo.path, *arguments, **options)
    assert listing(repo.path) == before
    assert not (repo.path.parent / "home" / "state").exists()
    assert result.stdout == b""
    return result


def _printed(result: Result) -> tuple[int, str, str]:
    """Return status, message and hint of the one error that was printed."""
    (printed,) = result.narration
    assert (printed["level"], len(result.stderr.splitlines())) == ("error", 1)
    return result.status, printed["message"], printed["hint"]


@pytest.mark.parametrize(
    "option",
    [
        "--no-such-option",
        "--resume=on",
    ],
)
def test_an_unknown_option(repo: Repo, option: str) -> None:
    """Also what may come one day: it is not accepted and ignored."""
    result = _refused(repo, option, "--", "true")
    assert result.status == 2
    assert f"No such option: {option.partition('=')[0]}" in result.stderr


def test_an_unknown_command(repo: Repo) -> None:
    """Not taken for an agent."""
    result = command("no-such-command", cwd=repo.path)
    assert result.status == 2
    assert "No such command 'no-such-command'" in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, "soon") for name in ("max-time", "iteration-timeout", "idle-timeout", "grace")),
        *(("delay", value) for value in ("5x", "-5s", "", "1h30m", "1e3", "٣s", "5 s", "inf", "0x10")),
    ],
)
def test_a_bad_duration(repo: Repo, option: str, value: str) -> None:
    """It is echoed, with the option and examples."""
    result = _refused(repo, f"--{option}={value}", "--", "true")
    assert _printed(result) == (2, f"--{option}: {value!r} is no duration (90s, 15m, 2h, 14d)", HELP)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, "-1") for name in ("max-iterations", "max-failures", "max-stalls", "max-tokens")),
        *(("max-iterations", value) for value in ("many", "1.5", "", "9999999999", "٣")),
    ],
)
def test_a_bad_number(repo: Repo, option: str, value: str) -> None:
    """Negative ones included."""
    result = _refused(repo, f"--{option}", value, "--", "true")
    assert _printed(result) == (2, f"--{option}: {value!r} is no whole number of 0 or more", HELP)


@pytest.mark.parametrize("value", ["-1", "$1", "", "1e3", "1,50", ".5", "1.", "inf", "nan", "1.0000001", "٣"])
def test_a_bad_amount(repo: Repo, value: str) -> None:
    """More than a number of dollars and cents is too much, too."""
    result = _refused(repo, "--max-cost", value, "--", "true")
    assert _printed(result) == (2, f"--max-cost: {value!r} is no amount in US dollars (5, 0.50)", HELP)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("isolation", "maybe", "is none of prefer, require, clone, off"),
        ("on-dirty", "stash", "is none of wip, keep"),
        ("ignore", "nowhere", "is none of gitignore, exclude, off"),
        ("on-leak", "ask", "is none of report, stop"),
        ("hooks", "maybe", "is neither on nor off"),
        ("preamble", "maybe", "is neither on nor off"),
        ("isolation", "", "is none of prefer, require, clone, off"),
    ],
)
def test_a_bad_choice(repo: Repo, option: str, value: str, reason: str) -> None:
    """The choices are named."""
    result = _refused(repo, f"--{option}={value}", "--", "true")
    assert _printed(result) == (2, f"--{option}: {value!r} {reason}", HELP)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("RALPH_WRAP_MAX_ITERATIONS", "-3", "is no whole number of 0 or more"),
        ("RALPH_WRAP_MAX_COST", "much", "is no amount in US dollars (5, 0.50)"),
        ("RALPH_WRAP_DELAY", "soon", "is no duration (90s, 15m, 2h, 14d)"),
        ("RALPH_WRAP_ISOLATION", "maybe", "is none of prefer, require, clone, off"),
        ("RALPH_KEEP_WORKTREES", "perhaps", "is neither on nor off"),
    ],
)
def test_a_bad_variable(repo: Repo, variable: str, value: str, reason: str) -> None:
    """It is named as it stands in the environment."""
    result = _refused(repo, "--", "true", env={variable: value})
    assert _printed(result) == (2, f"{variable}: {value!r} {reason}", HELP)


@pytest.mark.parametrize("verb", ["run", "spawn"])
def test_a_misspelt_variable_is_named_once(repo: Repo, verb: str) -> None:
    """It changes nothing, and ends nothing."""
    misspelt = {"RALPH_WRAP_MAX_ITERATION": "3", "RALPH_WRAP_GRACE": "1s"}
    result = command(verb, "-n", "1", "--", "true", cwd=repo.path, env=misspelt)
    assert result.status == 0
    (printed,) = result.warnings
    assert printed["message"] == (
        "RALPH_WRAP_MAX_ITERATION is unknown and has no effect; "
        "the nearest known name is RALPH_WRAP_MAX_ITERATIONS"
    )


def test_an_agent_that_runs_us_finds_no_misspelt_variable(repo: Repo) -> None:
    """What a session puts into its environment is known."""
    inner = f"env -u RALPH_WRAP_DELAY {PROGRAM} run -n 1 -- true"
    result = run(repo.path, "-n", "1", "--", "sh", "-c", inner, env={"RALPH_WRAP_DELAY": "1s"})
    assert (result.status, result.warnings) == (0, [])


IGNORED = {
    "--base=HEAD": "--base",
    "--branch=topic": "--branch",
    "--on-leak=stop": "--on-leak",
    "--on-dirty=keep": "--on-dirty",
    "--keep-worktree": "--keep-worktree",
    "--drop-empty": "--drop-empty",
    "--ignore=off": "--ignore",
}


@pytest.mark.parametrize("typed", [*([option] for option in IGNORED), [*IGNORED]], ids=" ".join)
def test_an_option_for_a_worktree_is_named_where_there_is_none(repo: Repo, typed: list[str]) -> None:
    """In one line for all that were typed."""
    result = run(repo.path, "--isolation", "off", *typed, "-n", "1", "--", "true")
    names = ", ".join(IGNORED[option] for option in typed)
    assert (result.status, [printed["message"] for printed in result.warnings]) == (
        0,
        [f"{names}: no effect with isolation off, where there is no worktree"],
    )


@pytest.mark.parametrize("isolation", ["prefer", "off"])
def test_an_option_that_changes_something_is_no_reason_to_warn(repo: Repo, isolation: str) -> None:
    """Negative control; nor is what stands in the environment, for whatever session."""
    typed = ("--hooks=on", *(("--drop-empty",) if isolation == "prefer" else ()))
    env = {"RALPH_WRAP_ON_DIRTY": "keep"}
    result = run(repo.path, "--isolation", isolation, *typed, "-n", "1", "--", "true", env=env)
    assert (result.status, result.warnings) == (0, [])


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("run", "--no-such-option"), "run "),
        (("run", "--max-iterations"), "run "),
        (("drop", "--merged=yes"), "drop "),
        (("logs",), "logs "),
        (("no-such-command",), ""),
    ],
)
def test_a_mistake_looks_like_every_other_error(repo: Repo, words: tuple[str, ...], path: str) -> None:
    """The mistake, and where the help is: no box, no colour."""
    env = {"RALPH_WRAP_LOG_FORMAT": "text", "FORCE_COLOR": "1", "TERM": "xterm"}
    result = command(*words, cwd=repo.path, env=env)
    error, hint = result.stderr.splitlines()
    assert result.status == 2
    assert error.startswith("ralph-wrap: error: ")
    assert hint == f"ralph-wrap: hint: see ralph-wrap {path}--help"


@pytest.mark.parametrize(
    ("branch", "shown"),
    [("a..b", "'a..b'"), ("-x", "'-x'"), ("", "''"), ("a b", "'a b'"), ("x.lock", "'x.lock'")],
)
def test_a_bad_branch_name(repo: Repo, branch: str, shown: str) -> None:
    """Git's rules, and never an option."""
    result = _refused(repo, f"--branch={branch}", "--", "true")
    assert _printed(result) == (2, f"{shown} cannot be the name of a branch", "see git help check-ref-format")


@pytest.mark.parametrize(
    ("branch", "hint"),
    [("refs/heads/q", "name the branch q"), ("refs/tags/q", "name another branch")],
)
def test_the_full_name_of_a_ref_is_no_branch(repo: Repo, branch: str, hint: str) -> None:
    """Git would make refs/heads/refs/heads/q of it, which no other command finds by the name q."""
    result = _refused(repo, "--branch", branch, "--", "true")
    message = f"'{branch}' is the full name of a ref, and a branch is named without refs/heads/"
    assert _printed(result) == (2, message, hint)


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_prompt_file_that_is_not_there(repo: Repo, tmp_path: Path, by: str) -> None:
    """With its path as it is looked up."""
    options = ("-f", "absent.md") if by == "option" else ()
    env = {"RALPH_WRAP_PROMPT_FILE": "absent.md"} if by == "variable" else {}
    result = _refused(repo, "-C", repo.path, *options, "--", "true", cwd=tmp_path, env=env)
    assert _printed(result) == (
        2,
        f"prompt file {tmp_path}/absent.md cannot be read: No such file or directory",
        "name a file that exists",
    )


def test_a_prompt_file_that_is_a_directory(repo: Repo, tmp_path: Path) -> None:
    """Seen before anything is made, not in the first iteration."""
    result = _refused(repo, "-f", tmp_path, "--", "true")
    assert _printed(result) == (
        2,
        f"prompt file {tmp_path} cannot be read: Is a directory",
        "name a file that exists",
    )


def test_two_prompts(repo: Repo) -> None:
    """Neither is silently left out."""
    repo.write("task", "x")
    result = _refused(repo, "-p", "text", "-f", "task", "--", "true")
    assert _printed(result) == (2, "both a prompt and a prompt file are given (flags)", "give one of them")


OFFER = "ralph-wrap quickstart\nralph-wrap run --agent claude\nralph-wrap run -- COMMAND"
"""What to type in a project without an agent and without a prompt."""


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            (),
            "no agent is given",
            OFFER,
        ),
        (
            ("--",),
            "no agent is given",
            OFFER,
        ),
        (
            ("-a", "hal", "-p", "x"),
            "unknown agent 'hal'",
            (
                "known agents: agy, aider, amp, claude, codex, copilot, crush, cursor-agent, droid, gemini,"
                " kimi, opencode, qwen\n"
                "for another command: ralph-wrap run -- COMMAND"
            ),
        ),
        (
            ("-a", "claude", "--", "x"),
            "both --agent claude and a command are given",
            "ralph-wrap run --agent claude\nralph-wrap run -- COMMAND",
        ),
        (
            ("-a", "claude"),
            "no prompt for claude, and the project has no PROMPT.md",
            "ralph-wrap quickstart --agent claude\nralph-wrap run --agent claude --prompt TEXT",
        ),
    ],
)
def test_no_agent_that_can_be_meant(repo: Repo, arguments: tuple[str, ...], message: str, hint: str) -> None:
    """None, an unknown one, two, or one without what it needs."""
    assert _printed(_refused(repo, *arguments)) == (2, message, hint)


@pytest.mark.parametrize("by", ["-C", "--project", "variable"])
@pytest.mark.parametrize("kind", ["absent", "file"])
def test_a_project_that_is_not_there(repo: Repo, tmp_path: Path, by: str, kind: str) -> None:
    """Or is no directory."""
    directory = tmp_path / kind
    if kind == "file":
        directory.touch()
    options = () if by == "variable" else (by, directory)
    env = {"RALPH_WRAP_PROJECT": str(directory)} if by == "variable" else {}
    result = _refused(repo, *options, "--", "true", env=env)
    assert _printed(result) == (
        2,
        f"project {directory}: {'No such file or directory' if kind == 'absent' else 'not a directory'}",
        "name a directory that exists",
    )
    assert directory.exists() == (kind == "file")


WRONG_FILES = {
    "delay = soon\n": " is not valid TOML: Invalid value (at line 1, column 9)",
    "# one\n\ndelay = [\n": " is not valid TOML: Invalid value (at end of document)",
    "a = 1\na = 2\n": " is not valid TOML: Cannot overwrite a value (at line 2, column 6)",
    "max_iterations = 3\nspeed = 9\n": ': unknown key "speed"',
    "agents = 3\n": ": agents: tables are expected: [agents.NAME]",
    "[agents]\nmine = 3\n": ": agents.mine: a table is expected: [agents.mine]",
    "\n\n[agents.mine]\ncommand = 'x'\n": (
        ': agents.mine.command: a list of words is expected: ["mine", "--fast"]'
    ),
    "[agents.mine]\nspeed = 9\n": ': unknown key "speed" in [agents.mine]',
    "[agents.mine]\ncommand = ['x']\noutput = 'xml'\n": (
        ": agents.mine.output: 'xml' is none of"
        " text, claude, codex, opencode, copilot, gemini, qwen, kimi, droid"
    ),
    "[agents.mine]\ncommand = ['x']\nprompt = 'argument'\n": (
        ": agents.mine.prompt: 'argument' needs {prompt} in the command"
    ),
    "[agents.mine.env]\nGIT_DIR = '/elsewhere'\n": (
        ": agents.mine.env: GIT_DIR is not for an agent's table to set"
    ),
    '# x\ndelay = "soon"\n': ": delay: 'soon' is no duration (90s, 15m, 2h, 14d)",
    "max_failures = -1\n": ": max_failures: '-1' is no whole number of 0 or more",
    "max_failures = 1.5\n": ": max_failures: '1.5' is no whole number of 0 or more",
    "until = ['x']\n": ": until: a single value is expected",
    "hooks = 3\n": ": hooks: '3' is neither on nor off",
    "keep_conversation = 3\n": ": keep_conversation: '3' is neither on nor off",
    'isolation = "maybe"\n': ": isolation: 'maybe' is none of prefer, require, clone, off",
    'remote_beat = "11m"\n': ": remote_beat: '11m' is not above 0s and at most 10m",
    "remote_beat = 0\n": ": remote_beat: '0' is not above 0s and at most 10m",
    "delay = nan\n": ": delay: 'nan' is no duration (90s, 15m, 2h, 14d)",
    "prompt = 2026-01-02\n": ": prompt: a single value is expected",
    "max_stalls = true\n": ": max_stalls: 'True' is no whole number of 0 or more",
    '"max_stalls" = "x"\n': ": max_stalls: 'x' is no whole number of 0 or more",
}
"""Configuration files that are refused, with the end of the message."""


@pytest.mark.parametrize(("content", "message"), WRONG_FILES.items())
def test_a_bad_configuration(repo: Repo, content: str, message: str) -> None:
    """File and key are named."""
    path = repo.write(".ralph/config.toml", content)
    status, printed, hint = _printed(_refused(repo, "--", "true"))
    assert (status, printed) == (2, f"{path}{message}")
    assert hint


def test_a_configuration_that_is_not_text(repo: Repo) -> None:
    """Bytes that are no UTF-8."""
    path = repo.write(".ralph/config.toml", b'until = "\xff"\n')
    status, printed, _ = _printed(_refused(repo, "--", "true"))
    assert status == 2
    assert printed.startswith(f"{path} is not valid TOML: 'utf-8' codec can't decode byte 0xff in position 9")


def test_a_configuration_that_is_a_directory(repo: Repo) -> None:
    """It cannot be read, which is not the same as being absent."""
    path = repo.path / ".ralph" / "config.toml"
    path.mkdir(parents=True)
    result = _refused(repo, "--", "true")
    assert _printed(result) == (2, f"{path} cannot be read: not a regular file", "chmod or remove it")


def test_a_prompt_file_in_the_configuration_that_is_not_there(repo: Repo) -> None:
    """Relative to the project root, where the file stands."""
    repo.write(".ralph/config.toml", 'prompt_file = "absent.md"\n')
    result = _refused(repo, "--", "true")
    assert _printed(result)[:2] == (
        2,
        f"prompt file {repo.path}/absent.md cannot be read: No such file or directory",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fleet run --count 1 --host machine --host-grace soon", "'soon' is no duration (90s, 15m, 2h, 14d)"),
        ("fleet run --count 1 --fleet-max-cost much", "'much' is no amount in US dollars"),
    ],
)
def test_a_wrong_value_of_a_fleet(repo: Repo, words: str, message: str) -> None:
    """It is no error of ours to report, with a traceback."""
    result = command(*words.split(), cwd=repo.path)
    assert (result.status, message in result.stderr, "Traceback" in result.stderr) == (2, True, False)


@pytest.mark.parametrize(
    "words", ["worktree create task", "worktree enter try --session one", "pool --fill", "apply aaaa"]
)
def test_a_repository_without_a_commit(repo: Repo, words: str) -> None:
    """One situation has one exit status, whichever command meets it."""
    grow(repo, "ralph/aaaa", "main", {"new.txt": "new\n"})
    grow(repo, "ralph/aaaa-wip", "ralph/aaaa", {"more.txt": "more\n"})
    repo.write(".ralph/config.toml", "pool = 1\n")
    repo.git("symbolic-ref", "HEAD", "refs/heads/empty")
    repo.git("rm", "-rfq", "--cached", ".")
    result = command(*words.split(), cwd=repo.path, env=TRUSTED)
    said = (result.stderr + result.stdout.decode()).replace("\\", "")
    assert (result.status, f"{repo.path} has no commit yet" in said) == (4, True), said
