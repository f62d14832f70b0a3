"""What the README says is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import config
from ralph_wrap.agents import NAMES, known
from ralph_wrap.config import Settings
from ralph_wrap.config.parsers import FLAG
from ralph_wrap.config.table import TYPED
from ralph_wrap.errors import AgentError, AgentNotFoundError, RalphError, UsageError
from ralph_wrap.loop.policy import CUT_SHORT
from tests.support.sessions import command, run
from tests.support.trees import on_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

TESTS = Path(__file__).parent
README = (Path(__file__).parent.parent / "README.md").read_text()
TYPED_ROWS = [row for row in Settings.options if TYPED in row.sources]


def _rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, its head left out."""
    section = README.split(f"{heading}\n", 1)[1]
    lines = section[section.index("\n|") + 1 :].split("\n\n", 1)[0].split("\n")
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    """The table names each status that the program itself gives."""
    statuses = {row[0] for row in _rows("### Exit status")}
    ours = {
        0,
        CUT_SHORT,
        *(kind.exit_code for kind in (UsageError, RalphError, AgentError, AgentNotFoundError)),
    }
    assert statuses == {str(status) for status in ours} | {"n", "128+n"}


def test_the_options_exist(repo: Repo) -> None:
    """Every option in the table is one of run's."""
    shown = command("run", "--help", cwd=repo.path, env={"COLUMNS": "200"}).stdout.decode()
    for names, *_ in _rows("## `ralph-wrap run`"):
        for name in re.findall(r"`(--?[a-z-]+)", names):
            assert f"{name} " in shown, name


def test_the_defaults_are_those_of_the_table() -> None:
    """Of each option in a row, in their order; where there is none, the cell is empty or says so."""
    words = {word: row for row in TYPED_ROWS for word in row.words}
    for names, cell, _ in _rows("## `ralph-wrap run`"):
        rows = [words[word] for word in re.findall(r"`(--?[a-z-]+)", names) if word in words]
        told = ", ".join(row.default_text for row in rows if row.default_text)
        assert cell.replace("`", "") in ({told} if told else {"", "none"}), names


def test_the_options_for_a_worktree_are_those_of_the_table() -> None:
    """Those that a session without one warns about."""
    [listed] = re.findall(r"an option for a worktree \(([^)]*)\)", README)
    words = re.findall(r"`(--[a-z-]+)`", listed)
    assert sorted(words) == sorted(row.word for row in Settings.options if row.needs_worktree)


def test_every_option_is_in_the_help(repo: Repo) -> None:
    """What the configuration knows can be typed."""
    shown = command("run", "--help", cwd=repo.path, env={"COLUMNS": "200"}).stdout.decode()
    assert [row.word for row in TYPED_ROWS if f"{row.word} " not in shown] == []


def test_the_help_shows_each_default(repo: Repo) -> None:
    """Read as if it was typed, it is the default; switches and what is off by being absent show none."""
    shown = command("run", "--help", cwd=repo.path, env={"COLUMNS": "250"}).stdout.decode()
    lines = dict(re.findall(r"^\W+--([a-z-]+)(.*)$", shown, re.MULTILINE))
    told = {row: _default_told(lines[row.word.removeprefix("--")]) for row in TYPED_ROWS}
    described = {
        "prompt_file": "PROMPT.md if it exists",
        "name": "the first line of the prompt",
        "branch": "ralph/<id>",
    }
    nothing = {None, "", 0, ()}
    for row, text in told.items():
        if row.is_switch or (row.default in nothing and row.kind is not FLAG):
            assert text == described.get(row.name), row.name
        else:
            assert text is not None, row.name
            typed = config.load(repo.path, repo.path, repo.path, {row.name: text}, {}, ())
            assert getattr(typed, row.name) == row.default


def _default_told(line: str) -> str | None:
    found = re.search(r"\(default: (.*)\)", line)
    return found[1] if found else None


def test_the_command_lines_of_agents_are_those_that_are_run() -> None:
    """Each known agent is in the table, with its words."""
    rows = {name.strip("`"): words.strip("`") for name, words, _ in _rows("### Agents")}
    assert rows == {name: " ".join(known(name).command) for name in NAMES}


def test_the_help_names_each_agent() -> None:
    """The table of options stands below the agents, and cannot ask them."""
    assert config.ROWS["agent"].help.startswith(f"{', '.join(NAMES)}, ")


def test_the_agents_of_the_example_are_read(repo: Repo) -> None:
    """The block on ``[agents.NAME]``, as it stands."""
    [block] = [block for block in _blocks("toml") if "[agents." in block]
    repo.write(".ralph/config.toml", block)
    mine, claude = config.of_project(repo.path).agents
    assert (mine[0], mine[1].prompt, mine[1].env) == ("mine", "argument", (("MINE_MODEL", "small"),))
    assert (claude[0], claude[1].output) == ("claude", None)


def test_each_row_names_a_test() -> None:
    """What other tools ask for is tried, by a test of that name."""
    for _, cell in _rows("### What other tools ask for"):
        module, _, name = cell.strip("`").partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (TESTS / module).read_text(), re.MULTILINE), cell


def test_the_python_example_runs(repo: Repo) -> None:
    """As it stands, with an agent of that name."""
    repo.write("agent.sh", "#!/bin/sh\ntrue\n", executable=True)
    repo.commit("an agent")
    [example] = _blocks("python")
    done = subprocess.run(
        (sys.executable, "-c", example), cwd=repo.path, capture_output=True, check=True, text=True
    )
    assert done.stdout.startswith("SessionReport(id=")


AFTERWARDS = [
    line.removeprefix("$ ").partition("  #")[0].strip()
    for line in README.split("### Afterwards, with plain git\n", 1)[1].split("```")[1].split("\n")
    if line.startswith("$ ")
]


def test_the_commands_for_afterwards_run_as_they_stand(repo: Repo, script: Callable[[str], str]) -> None:
    """In order, but for the id, where a session has committed one thing and left another."""
    agent = script(
        "echo mine > mine; git add mine; git commit -q -m mine; echo left >> file.txt; echo new > new"
    )
    agent_id = run(repo.path, "-n", "1", "--", agent).report["id"]
    assert len(AFTERWARDS) == 5
    told = []
    for line in AFTERWARDS:
        done = subprocess.run(
            ("sh", "-c", line.replace("a3f2", agent_id)), cwd=repo.path, check=False, capture_output=True
        )
        assert done.returncode == 0, (line, done.stderr)
        told.append(done.stdout.decode())
    assert ("+mine" in told[0], "+left" in told[0]) == (True, False)
    assert ("+mine" in told[1], "+left" in told[1], "+new" in told[1]) == (False, True, True)
    assert repo.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    files = on_disk(repo.path)
    assert [files[name][1] for name in (b"mine", b"file.txt", b"new")] == [
        b"mine\n",
        b"one\nleft\n",
        b"new\n",
    ]


def test_a_finished_sessions_directory_may_be_deleted(repo: Repo, script: Callable[[str], str]) -> None:
    """Nobody misses it: what was saved stays, and nothing is said of it."""
    [line] = [line for line in README.split("\n") if "`rm -r .ralph/run/sessions/<session>`" in line]
    agent = script("echo new > new")
    gone, other = (run(repo.path, "-n", "1", "--", agent).report for _ in range(2))
    typed = re.findall(r"`(rm -r [^`]*)`", line)[0].replace("<session>", gone["session"])
    subprocess.run(("sh", "-c", typed), cwd=repo.path, check=True)
    shown = command("ps", "--all", "--json", cwd=repo.path)
    assert [(entry["id"], entry["kept"]) for entry in json.loads(shown.stdout)["data"]] == [
        (other["id"], None)
    ]
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, swept.stdout, swept.stderr) == (0, b"", "")
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
    [line] = [line for line in README.split("\n") if "git restore" in line]
    typed = line.removeprefix("$ ").partition("  #")[0].replace("a3f2", report["id"])
    subprocess.run(("sh", "-c", typed), cwd=repo.path, check=True, capture_output=True)
    files = {path: content for path, (_, content) in on_disk(repo.path).items() if not path.startswith(b".")}
    assert files == {b"new": b"new\n", b"file.txt": b"changed\n", b"d/deep": b"deep\n"}
