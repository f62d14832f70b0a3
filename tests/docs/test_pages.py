"""What the pages say is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import config
from ralph_wrap.agents import NAMES, known
from ralph_wrap.config.parsers import FLAG
from ralph_wrap.config.table import TYPED
from ralph_wrap.interfaces.cli.app import all_loaded
from tests.docs.documents import ALL, DOCS, PAGES, ROOT, blocks, rows, section
from tests.support.package_modules import PACKAGE
from tests.support.sessions import command, run
from tests.support.trees import on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo

TESTS = Path(__file__).parent.parent
TYPED_ROWS = [row for row in config.Settings.options if TYPED in row.sources]

FOREIGN = frozenset(
    {
        *("--busy", "--continue", "--format", "--include-partial-messages", "--init", "--max-budget-usd"),
        *("--pid", "--resume", "--session", "--signal", "--user", "--worktree"),
    }
)
"""Options of other programs that pages name alone."""


# Options and commands


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), group
    for name, found in getattr(group, "commands", {}).items():
        yield from _commands(found, *path, name)


COMMANDS = dict(_commands(all_loaded()))
OPTIONS = {
    name: {word for known in found.params for word in (*known.opts, *known.secondary_opts)} | {"--help", "-h"}
    for name, found in COMMANDS.items()
}


def _typed(line: str) -> tuple[str, list[str]]:
    """Return the command of ralph-wrap in a line, and the options after it; those of the agent left out."""
    words = re.split(r"[|;&>#]|\$\(", line.partition("ralph-wrap ")[2])[0].split(" -- ")[0].split()
    name = ""
    while words and f"{name} {words[0]}".strip() in COMMANDS:
        name = f"{name} {words.pop(0)}".strip()
    return name, [found for word in words for found in re.findall(r"^-[a-zA-Z]$|^--[a-z][a-z-]*", word)]


def _wrong_options(text: str) -> list[str]:
    """Return the lines of code whose command, or whose option, is not there."""
    shown = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    shown += [
        line
        for code in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
        for line in code.split("\n")
    ]
    wrong = []
    for line in shown:
        name, options = _typed(line)
        if "ralph-wrap " in line and name and not {*options} <= OPTIONS[name]:
            wrong.append(line)
        if re.match(r"--[a-z]", line) and line.split()[0].partition("=")[0].rstrip("`") not in EVERY_OPTION:
            wrong.append(line)
    return wrong


EVERY_OPTION = FOREIGN.union(*OPTIONS.values())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_options_exist(path: Path) -> None:
    """Each option in code on a page is one of its command."""
    assert _wrong_options(path.read_text()) == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("`ralph-wrap run --absent`", "`ralph-wrap run --max-time 2h -- agent --absent`"),
        ("`--absent`", "`--max-time 2h`"),
        (
            "```sh\nralph-wrap worktree exit --absent\n```",
            "```sh\nralph-wrap worktree exit --action keep\n```",
        ),
        (
            "```console\n$ ralph-wrap ps --absent | head\n```",
            "```console\n$ ralph-wrap ps --all | head --absent\n```",
        ),
    ],
)
def test_a_wrong_option_is_seen(wrong: str, right: str) -> None:
    """In a sentence and in a block; those of other programs are free."""
    assert len(_wrong_options(wrong)) == 1
    assert _wrong_options(right) == []


def test_every_option_is_in_the_help(repo: Repo) -> None:
    """What the configuration knows can be typed."""
    shown = command("run", "--help", cwd=repo.path, env={"COLUMNS": "200"}).stdout.decode()
    assert [row.word for row in TYPED_ROWS if f"{row.word} " not in shown] == []


def test_the_help_shows_each_default(repo: Repo) -> None:
    """Read as if it was typed, it is the default; switches and what is off by being absent show none."""
    shown = command("run", "--help", cwd=repo.path, env={"COLUMNS": "250"}).stdout.decode()
    lines = dict(re.findall(r"^\W+--([a-z-]+)(.*)$", shown, re.MULTILINE))
    defaults = {row: _default_in(lines[row.word.removeprefix("--")]) for row in TYPED_ROWS}
    described = {
        "prompt_file": "PROMPT.md if it exists",
        "name": "the first line of the prompt",
        "branch": "ralph/<id>",
    }
    nothing = {None, "", 0, ()}
    for row, text in defaults.items():
        if row.is_switch or (row.default in nothing and row.kind is not FLAG):
            assert text == described.get(row.name), row.name
        else:
            assert text is not None, row.name
            typed = config.load(repo.path, repo.path, repo.path, {row.name: text}, {}, ())
            assert getattr(typed, row.name) == row.default


def _default_in(line: str) -> str | None:
    found = re.search(r"\(default: (.*)\)", line)
    return found[1] if found else None


# Agents, configuration, Python


def test_the_command_lines_of_agents_are_those_that_are_run() -> None:
    """Each known agent is in the table, with its words."""
    table = {name.strip("`"): words.strip("`") for name, words, _ in rows((DOCS / "agents.md").read_text())}
    assert table == {name: " ".join(known(name).command) for name in NAMES}


def test_the_help_names_each_agent() -> None:
    """In the order of the alphabet."""
    assert config.ROWS["agent"].help.startswith(f"{', '.join(sorted(NAMES))}, ")


def test_the_agents_of_the_example_are_read(repo: Repo) -> None:
    """The block on ``[agents.NAME]``, as it stands."""
    [block] = [block.text for block in blocks(DOCS / "agents.md") if block.language == "toml"]
    repo.write(".ralph/config.toml", block)
    mine, claude = config.of_project(repo.path, {}).agents
    assert (mine[0], mine[1].prompt, mine[1].env) == ("mine", "argument", (("MINE_MODEL", "small"),))
    assert (claude[0], claude[1].output) == ("claude", None)


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language == "toml"], ids=lambda block: block.name
)
def test_each_configuration_is_read(repo: Repo, block: Any) -> None:
    """Without an error, as it stands."""
    repo.write(".ralph/config.toml", block.text)
    read = config.of_project(repo.path, {})
    assert [row.name for row in config.Settings.options if getattr(read, row.name) != row.default]


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language == "json"], ids=lambda block: block.name
)
def test_each_json_is_json(block: Any) -> None:
    """It can be parsed, and a job is a job."""
    assert isinstance(json.loads(block.text), dict)


def test_the_compose_file_has_the_lines_of_the_example() -> None:
    """Each line of the page is one of the file, in the same order."""
    [block] = [block.text for block in blocks(DOCS / "containers.md") if block.language == "yaml"]
    lines = iter((ROOT / "docker/compose.yaml").read_text().splitlines())
    assert [line for line in block.splitlines() if line not in lines] == []


def test_the_job_is_read(repo: Repo) -> None:
    """The example of a job, as it stands."""
    [block] = [block.text for block in blocks(DOCS / "configuration.md") if block.language == "json"]
    repo.write("job.json", block)
    repo.write("src/parser/file", "f\n")
    repo.write(".gitignore", "node_modules\n")
    (repo.path / "node_modules").mkdir()
    repo.commit("more")
    assert (
        run(repo.path, "-n", "1", "--job", "job.json", "--", "sh", "-c", "ls src").ending[0]
        == "max-iterations"
    )


def test_the_python_examples_run(repo: Repo) -> None:
    """As they stand, with an agent of the same name."""
    repo.write("agent.sh", "#!/bin/sh\ntrue\n", executable=True)
    repo.commit("an agent")
    examples = [block.text for block in blocks(DOCS / "integrations.md") if block.language == "python"]
    outputs = [
        subprocess.run(
            (sys.executable, "-c", text), cwd=repo.path, capture_output=True, check=True, text=True
        ).stdout
        for text in examples
    ]
    assert [output[:13] for output in outputs] == ["SessionReport", "[feature-auth"]
    assert repo.git("rev-parse", "--verify", "--quiet", "refs/heads/feature-auth")


def test_each_row_of_the_source_systems_names_a_test() -> None:
    """The test that a row names exists."""
    table = rows((DOCS / "development/source-systems.md").read_text())
    assert len(table) > 30
    for _, cell in table:
        module, _, name = cell.strip("`").partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (TESTS / module).read_text(), re.MULTILINE), cell


# Troubleshooting

TROUBLESHOOTING = DOCS / "troubleshooting.md"


def test_each_check_of_doctor_is_explained(repo: Repo) -> None:
    """Each has a row, and each row is a check of doctor."""
    repo.write("biome.json", "{}")  # a check of its own, which a project without such a file has not
    checks = json.loads(command("doctor", "--json", cwd=repo.path).stdout)["data"]
    names = {re.sub(r"^agent .*|^other agents$", "agent NAME", entry["check"]) for entry in checks}
    explained = {row[0].strip("`") for row in rows(section(TROUBLESHOOTING, "## The checks of `doctor`"))}
    assert len(explained) > 15
    assert explained == names


def test_each_message_is_one_of_the_program() -> None:
    """The page quotes a part of it, which is in the code."""
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    tables = TROUBLESHOOTING.read_text().split("## Messages\n")[1]
    quoted = re.findall(r"^\| `([^`]+)` \|", tables, re.MULTILINE)
    assert len(quoted) > 20
    assert [message for message in quoted if message not in sources] == []


# Recovery


RECOVERY = DOCS / "recovery.md"
AFTERWARDS = [
    line.removeprefix("$ ").partition("  #")[0].strip()
    for line in section(RECOVERY, "## Afterwards, with plain git").split("```")[1].split("\n")
    if line.startswith("$ ")
]


def test_the_commands_for_afterwards_run_as_they_stand(repo: Repo, script: Callable[[str], str]) -> None:
    """In order, but for the id, where a session has committed one thing and left another."""
    agent = script(
        "echo mine > mine; git add mine; git commit -q -m mine; echo left >> file.txt; echo new > new"
    )
    agent_id = run(repo.path, "-n", "1", "--", agent).report["id"]
    assert len(AFTERWARDS) == 5
    outputs = []
    for line in AFTERWARDS:
        done = subprocess.run(
            ("sh", "-c", line.replace("a3f2", agent_id)), cwd=repo.path, check=False, capture_output=True
        )
        assert done.returncode == 0, (line, done.stderr)
        outputs.append(done.stdout.decode())
    assert ("+mine" in outputs[0], "+left" in outputs[0]) == (True, False)
    assert ("+mine" in outputs[1], "+left" in outputs[1], "+new" in outputs[1]) == (False, True, True)
    assert repo.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    files = on_disk(repo.path)
    assert [files[name][1] for name in (b"mine", b"file.txt", b"new")] == [
        b"mine\n",
        b"one\nleft\n",
        b"new\n",
    ]


def test_a_finished_sessions_directory_may_be_deleted(repo: Repo, script: Callable[[str], str]) -> None:
    """What was saved stays, and no command misses the directory."""
    [line] = [
        line for line in RECOVERY.read_text().split("\n") if line.startswith("`rm -r .ralph/run/sessions/")
    ]
    agent = script("echo new > new")
    gone, other = (run(repo.path, "-n", "1", "--", agent).report for _ in range(2))
    typed = re.findall(r"`(rm -r [^`]*)`", line)[0].replace("<session>", gone["session"])
    subprocess.run(("sh", "-c", typed), cwd=repo.path, check=True)
    shown = command("ps", "--all", "--json", cwd=repo.path)
    assert [(entry["id"], entry["kept"]) for entry in json.loads(shown.stdout)["data"]] == [
        (other["id"], None)
    ]
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, swept.stdout, "no dead sessions" in swept.stderr) == (0, b"", True)
    assert repo.show(f"{gone['saved']}:new") == b"new\n"
    assert run(repo.path, "-n", "1", "--", agent).warnings == []


def test_saved_work_has_a_second_parent_where_not_all_was_staged(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """Always a single commit, whatever the iterations."""
    parents = []
    for then in ("git add -A", "true"):
        agent = script(f"echo $RALPH_ITERATION >> new; {then}")
        report = run(repo.path, "-n", "2", "--ignore", "exclude", "--", agent).report
        parents.append(len(repo.git("log", "-1", "--format=%P", report["saved"]).split()))
        assert (
            repo.git("rev-list", "--first-parent", "--count", f"{report['base']}..{report['saved']}") == "1"
        )
    assert parents == [1, 2]


def test_saved_work_comes_back_as_described(repo: Repo, script: Callable[[str], str]) -> None:
    """With the two git commands of the section on afterwards."""
    repo.write("doomed", "d\n")
    repo.commit("more")
    agent = script("echo new > new; echo changed > file.txt; rm doomed; mkdir d; echo deep > d/deep")
    report = run(repo.path, "-n", "1", "--ignore", "exclude", "--", agent).report
    [line] = [line for line in AFTERWARDS if "git restore" in line]
    subprocess.run(
        ("sh", "-c", line.replace("a3f2", report["id"])), cwd=repo.path, check=True, capture_output=True
    )
    files = {path: content for path, (_, content) in on_disk(repo.path).items() if not path.startswith(b".")}
    assert files == {b"new": b"new\n", b"file.txt": b"changed\n", b"d/deep": b"deep\n"}
