"""Changes outside a session's worktree are reported in neutral words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ralph_wrap.state import report as reports
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command, run
from tests.worktree.leaks.sessions import command_line, leaks, session

pytestmark = pytest.mark.usefixtures("ended")


OUT = 'cd "$RALPH_PROJECT" && '

IN = 'cd "$RALPH_WORKSPACE" && '

EDIT = "echo more >> file.txt"

# As a user would in another terminal: nothing of the session is in the environment.
ELSEWHERE = f'cd "$RALPH_PROJECT" && env -u RALPH_SESSION_ID -u RALPH_AGENT_ID {PROGRAM}'

# Git compares times of whole seconds. It misses a change in the second of the file's last change, if the
# time of the file is set back (README).
NEXT_SECOND = 'while [ "$(stat -c %Z file.txt)" -eq "$(date +%s)" ]; do sleep 0.05; done; '

FILES = {
    "a tracked file": ("", EDIT, ["file.txt (modified)"]),
    "by absolute path": ("", 'echo x > "$RALPH_PROJECT/file.txt"', ["file.txt (modified)"]),
    "as long as before": ("", "printf 'eno\\n' > file.txt", ["file.txt (modified)"]),
    "time set back": (
        "",
        f"{NEXT_SECOND}cp -p file.txt ../old; printf 'eno\\n' > file.txt; touch -r ../old file.txt",
        ["file.txt (modified)"],
    ),
    "mode": ("", "chmod +x file.txt", ["file.txt (modified)"]),
    "a symlink instead": ("", "ln -sf /etc/passwd file.txt", ["file.txt (modified)"]),
    "a new file": ("", "mkdir d; echo x > d/new", ["d/new (new)"]),
    "a new file beside others": ("mkdir d; echo x > d/one", "echo x > d/two", ["d/two (new)"]),
    "a name with everything": ("", "echo x > ' a\tb -> c'", [" a\tb -> c (new)"]),
    "deleted": ("", "rm file.txt", ["file.txt (deleted)"]),
    "an untracked file deleted": ("echo x > new", "rm new", ["new (gone)"]),
    "further": (EDIT, EDIT, ["file.txt (modified)"]),
    "further, as long as before": (
        "printf 'two\\n' > file.txt",
        f"{NEXT_SECOND}cp -p file.txt ../old; printf 'owt\\n' > file.txt; touch -r ../old file.txt",
        ["file.txt (modified)"],
    ),
    "an untracked file further": ("echo x > new", "echo y > new", ["new (modified)"]),
    "restored": (EDIT, "git checkout -q -- file.txt", ["file.txt (restored)"]),
    "staged": (EDIT, "git add file.txt", ["file.txt (staged)"]),
    "a new file staged": ("", "echo x > new; git add new", ["new (new, staged)"]),
    "unstaged": (f"{EDIT}; git add .", "git reset -q", ["file.txt (unstaged)"]),
    "out of the index alone": ("", "git rm -q --cached file.txt", ["file.txt (staged)"]),
    "the configuration of ralph-wrap": ("", "echo > .ralph/config.toml", [".ralph/config.toml (new)"]),
    "the ignore file": ("", "echo x >> .gitignore", [".gitignore (modified)"]),
}

REFS = {
    "a commit": (EDIT, "git commit -qam x", ["branch main moved from ID to ID"]),
    "a branch checked out": (
        "",
        "git switch -q -c side",
        ["HEAD moved from main to side", "branch side created at ID"],
    ),
    "no branch checked out": ("", "git switch -q --detach", ["HEAD moved from main to ID"]),
    "a branch created": ("", "git branch side", ["branch side created at ID"]),
    "a branch created from inside": ("", f"{IN}git branch side", ["branch side created at ID"]),
    "another branch inside": ("", f"{IN}git switch -q -c side", ["branch side created at ID"]),
    "a branch moved": ("git branch side", "git branch -f side HEAD~", ["branch side moved from ID to ID"]),
    "a branch deleted": ("git branch side", "git branch -D side", ["branch side deleted, was at ID"]),
    "a tag created": ("", "git tag v1", ["tag v1 created at ID"]),
    "a tag deleted": ("git tag v1", "git tag -d v1", ["tag v1 deleted, was at ID"]),
    "a note": ("", "git notes add -m x", ["refs/notes/commits created at ID"]),
    "stashed": (
        EDIT,
        "git stash -q",
        ['stash entry "WIP on main: ID second" created at ID', "file.txt (restored)"],
    ),
    "stashed inside": (  # git stash push names the branch: its versions differ in the name
        "",
        f"{IN}{EDIT}; git stash store -m x $(git stash create)",
        ['stash entry "x" created at ID'],
    ),
    "an older stash dropped": (
        f"{EDIT}; git stash -q -m one; {EDIT}; {EDIT}; git stash -q -m two",
        "git stash drop -q stash@{1}",
        ['stash entry "On main: one" gone, was at ID'],
    ),
}

REPOSITORY = {
    "configuration": ("", "git config user.name x", [".git/config changed: user.name"]),
    "configuration from inside": ("", f"{IN}git config user.name x", [".git/config changed: user.name"]),
    "bare": ("", "git config core.bare true", [".git/config changed: core.bare"]),
    "bare, and a file": (
        "",
        f"git config core.bare true; {EDIT}",
        [".git/config changed: core.bare", "file.txt (modified)"],
    ),
    "another work tree": (
        "",
        f"git config core.worktree /; {EDIT}",
        [".git/config changed: core.worktree", "file.txt (modified)"],
    ),
    "configuration that is none": (
        "",
        "echo '[' > .git/config.worktree",
        [".git/config.worktree changed: git cannot read it"],
    ),
    "a hook": ("", "mkdir -p .git/hooks; echo > .git/hooks/pre-commit", [".git/hooks/pre-commit created"]),
    "a hook rewritten": (
        "mkdir -p .git/hooks; echo a > .git/hooks/pre-commit",
        "echo b > .git/hooks/pre-commit",
        [".git/hooks/pre-commit changed"],
    ),
    "a hook switched on": (
        "mkdir -p .git/hooks; echo a > .git/hooks/pre-commit",
        "chmod +x .git/hooks/pre-commit",
        [".git/hooks/pre-commit changed"],
    ),
    "a hook that blocks its reader": (
        "",
        "mkdir -p .git/hooks; mkfifo .git/hooks/pre-commit",
        [".git/hooks/pre-commit created"],
    ),
    "excluded": (
        "mkdir -p .git/info; touch .git/info/exclude",
        "echo x >> .git/info/exclude",
        [".git/info/exclude changed"],
    ),
    "attributes": ("", "mkdir -p .git/info; echo > .git/info/attributes", [".git/info/attributes created"]),
}


@pytest.mark.parametrize(
    ("prepared", "agent", "found"),
    [*FILES.values(), *REFS.values(), *REPOSITORY.values()],
    ids=[*FILES, *REFS, *REPOSITORY],
)
def test_a_change_is_reported(repo: Repo, prepared: str, agent: str, found: list[str]) -> None:
    """Each kind of change, and nothing but that."""
    assert leaks(session(repo, f"{OUT}{agent}", prepared=prepared)) == found


UPSTREAM = (
    "git init -q --bare ../origin && git remote add origin $PWD/../origin && git push -q origin main"
    " && git -C ../origin update-ref refs/heads/news main"
)

COMMIT = "git commit -q --allow-empty -m x"

UNTIL_MOVED = 'until [ "$(git rev-parse topic)" != "$(git rev-parse main)" ]; do sleep 0.01; done'

INNOCENT = {
    "nothing": ("", "true"),
    "work inside": ("", f"{IN}{EDIT}; git commit -qam x; echo y > new; git add new"),
    "another state of the index": ("", "touch file.txt; git status"),
    "an ignored file": ("", "echo x > .file.txt.swp"),
    "the same again": ("", "cp file.txt ../old; cat ../old > file.txt"),
    "what was dirty before": (
        f"{EDIT}; echo x > new; git stash -q; {EDIT}; echo x > .git/info/attributes",
        "true",
    ),
    "refs packed": ("git branch side", "git pack-refs --all; git gc -q --prune=now; git update-server-info"),
    "refs being listed": ("", "echo > .git/info/refs_a1B2c3"),
    "a fetch": (UPSTREAM, "git fetch -q origin"),
    "its own branch pushed": (UPSTREAM, f"{IN}git push -q -u origin HEAD"),
    "another session": (
        "",
        f"{ELSEWHERE} run -n 2 -- sh -c 'echo $$ > new; git add .; git commit -qm x; echo > y'",
    ),
    "another session on a branch of its own": (
        "git branch topic",
        f"{ELSEWHERE} spawn --branch topic -- sh -c '{COMMIT}; mkfifo f; cat f' > ../id; {UNTIL_MOVED}",
    ),
    "another session in the background, and its end": (
        "",
        f'{ELSEWHERE} spawn -n 1 -- sh -c "echo > new" > ../id; {PROGRAM} rm $(cat ../id)',
    ),
    "a worktree for another program": ("", f'{ELSEWHERE} worktree create "fix the bug" > ../answer'),
    "a worktree elsewhere": ("", f'{ELSEWHERE} worktree create "fix the bug" --path trees/one > ../answer'),
    "a worktree and its end": (
        "",
        f"{ELSEWHERE} worktree create fix --path ../t; {PROGRAM} worktree cleanup ../t --keep-branch=false",
    ),
    "the end of a worktree": (
        f'{PROGRAM} worktree create "fix it" --path ../tree > ../answer',
        f"{ELSEWHERE} worktree cleanup ../tree --keep-branch=false",
    ),
    "a sweep": ("", f"{ELSEWHERE} sweep"),
    "warm worktrees": ("echo 'pool = 1' > .ralph/config.toml", f"{ELSEWHERE} pool --fill"),
}


@pytest.mark.parametrize(("prepared", "agent"), INNOCENT.values(), ids=INNOCENT)
def test_what_does_not_count(repo: Repo, prepared: str, agent: str) -> None:
    """What sessions and our other commands do, and what takes no work from anybody."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".git" / "info").mkdir(exist_ok=True)
    result = session(repo, f"{OUT}{{ {agent}; }} >&2", prepared=prepared)
    if "spawn" in agent:
        command("stop", "--all", cwd=repo.path)
    printed = [printed for printed in result.events if printed["event"].startswith("leak.")]
    assert (leaks(result), printed) == ([], [])


def test_the_rule_of_another_session_does_not_count(repo: Repo) -> None:
    """The user has taken it out: that counts, and the other session that adds it again does not."""
    take_out = f"{OUT}: > .gitignore; {ELSEWHERE} run -n 1 -- true >&2"
    result = run(repo.path, "-n", "2", "--", "sh", "-c", take_out)
    assert result.report["leaks"] == []
    assert (repo.path / ".gitignore").read_text() == ".ralph/worktrees/\n"


@pytest.mark.parametrize(
    "plant",
    [
        "git config core.fsmonitor 'touch ../planted; false'",
        "git config diff.external 'touch ../planted'",
        "printf '#!/bin/sh\\ntouch ../planted\\n' >.git/hooks/reference-transaction",
    ],
)
def test_no_hint_is_a_git_command_after_a_change_of_what_git_runs(repo: Repo, plant: str) -> None:
    """Git would run it, as soon as the user pastes the command; the audit runs nothing of it."""
    result = session(repo, f"{OUT}{EDIT}; {plant}")
    hints = [warning["hint"] for warning in result.warnings if warning["event"] == "leak.found"]
    assert [hint for hint in hints if "git -C" in hint] == []
    assert all(f"ralph-wrap audit -C {repo.path}" in hint for hint in hints)
    assert hints


def test_the_words_accuse_no_agent(repo: Repo) -> None:
    """One line and a hint: what has changed, when, and where to look; the exit report names it."""
    result = session(repo, f"{OUT}{EDIT}; git branch side")
    (printed,) = result.warnings
    created = f"branch side created at {repo.head[:7]}"
    assert (printed["event"], printed["message"], printed["hint"]) == (
        "leak.found",
        f"changed outside the worktree during iteration 1: {created}, file.txt (modified)",
        f"to see what changed: git -C {repo.path} status\ngit -C {repo.path} diff HEAD",
    )
    assert result.directory is not None
    report = reports.read(result.directory / "report.json")
    assert isinstance(report, reports.SessionReport)
    rows = reports.summary(report, result.directory / "output.log").splitlines()
    assert [row.split(maxsplit=1)[1] for row in rows if row.startswith("  outside")] == [
        f"during iteration 1: {created}",
        "during iteration 1: file.txt (modified)",
    ]


LOST = {
    "a branch": ("git branch side", "git branch -D side", "git rev-parse side"),
    "a branch with a name for a shell": (
        "git branch 'a$(touch${IFS}x)'",
        "git branch -D 'a$(touch${IFS}x)'",
        "git rev-parse 'a$(touch${IFS}x)'; ls",
    ),
    "a branch with the name of an option": (
        "git update-ref refs/heads/-M HEAD",
        "git update-ref -d refs/heads/-M",
        "git rev-parse refs/heads/-M",
    ),
    "a tag with the name of an option": (
        "git update-ref refs/tags/-d HEAD",
        "git update-ref -d refs/tags/-d",
        "git rev-parse refs/tags/-d",
    ),
    "an annotated tag": ("git tag -m v v1", "git tag -d v1", "git rev-parse v1"),
    "a note": ("git notes add -m x", "git update-ref -d refs/notes/commits", "git notes list"),
    "a stash entry": (f"{EDIT}; git stash -q -m 'my; own'", "git stash drop -q", "git stash list"),
    "all stash entries": (
        f"{EDIT}; git stash -q -m one; {EDIT}; git stash -q -m two",
        "git stash clear",
        "git stash list; git rev-parse stash",
    ),
}


def typed(line: str, cwd: Path) -> str:
    """Return the output of a line that somebody types there."""
    return subprocess.check_output(("sh", "-c", line), cwd=cwd, text=True)


@pytest.mark.parametrize(("prepared", "agent", "shown"), LOST.values(), ids=LOST)
def test_the_command_brings_back_what_is_lost(repo: Repo, prepared: str, agent: str, shown: str) -> None:
    """The hint and the report have it, and afterwards all is as before."""
    command_line(repo, prepared)
    before = typed(shown, repo.path)
    result = session(repo, f"{OUT}{agent} >&2")
    assert not repo.git("stash", "list")
    purpose = "to bring it back: "
    [warning] = result.warnings
    hinted = [line.removeprefix(purpose) for line in warning["hint"].split("\n") if line.startswith(purpose)]
    reported = [line.partition(purpose)[2] for line in result.report["leaks"]]
    assert hinted == [line for line in reported if line] != []
    for line in hinted:
        typed(line, Path("/"))
    assert typed(shown, repo.path) == before


def test_a_forged_log_of_the_stash_is_no_command(repo: Repo) -> None:
    """What it names in the place of an object id would be an option of git."""
    forged = "printf '%040d --output=victim x <x@x> 0 +0000\\tx\\n' 0 >> .git/logs/refs/stash"
    result = session(repo, f"{OUT}{EDIT}; git stash -q -m mine; {forged}")
    assert "--output" not in result.warnings[0]["hint"]
    assert "stash show -p" in result.warnings[0]["hint"]


def test_an_entry_that_the_agent_leaves_can_be_seen(repo: Repo) -> None:
    """Its work is on no branch of the session."""
    result = session(repo, f"{IN}{EDIT}; git stash -q -m mine")
    [line] = [line for line in result.warnings[0]["hint"].split("\n") if "to see it: " in line]
    shown = typed(line.removeprefix("to see it: "), Path("/"))
    assert "+more" in shown


def test_many_changes_are_counted(repo: Repo) -> None:
    """Ten are named, in the message and in the report."""
    result = session(repo, f"{OUT}for n in $(seq 10 30); do echo > new-$n; done")
    named = [f"new-{number} (new)" for number in range(10, 20)]
    assert leaks(result) == [*named, "and 11 more"]
    assert result.warnings[0]["message"].endswith(": " + ", ".join([*named, "and 11 more"]))


def test_no_value_of_the_configuration_is_printed(repo: Repo) -> None:
    """Nor an address in a key: there may be passwords in both."""
    agent = (
        f"{OUT}git config http.https://a:secret@x.invalid/.extraHeader secret;"
        " git config url.https://secret@x.invalid/.insteadOf x:; git config remote.origin.url secret"
    )
    result = session(repo, agent)
    assert leaks(result) == [
        ".git/config changed: http.….extraheader, remote.origin.url, url.….insteadof",
    ]
    assert not any("secret" in str(printed) for printed in result.warnings)


def test_each_iteration_has_its_own(repo: Repo) -> None:
    """A change in one is not reported for the next; with report, the default, the loop goes on."""
    agent = f'{OUT}[ "$RALPH_ITERATION" = 2 ] || echo "$RALPH_ITERATION" >> file.txt'
    result = session(repo, agent, "-n", "3")
    assert result.ending == ("max-iterations", 3, 0)
    assert result.report["leaks"] == [f"during iteration {n}: file.txt (modified)" for n in (1, 3)]


@pytest.mark.timeout(120)
def test_a_fifo_of_the_agent_does_not_hold_up_the_end(repo: Repo) -> None:
    """Git waits for it without end, so the look ends git, and says why it knows nothing."""
    result = session(repo, f"{OUT}rm -f .git/packed-refs; mkfifo .git/packed-refs")
    [unknown] = result.report["leaks"]
    assert unknown.startswith("not known: ")
    assert "/.git/packed-refs is a FIFO or a device" in unknown
