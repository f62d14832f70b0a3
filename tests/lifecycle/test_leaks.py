"""What changes outside a session's worktree is told in neutral words, and ends the loop if that is wanted."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state import report as reports
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.shim import shim_git
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.sessions import Result

OUT = 'cd "$RALPH_PROJECT" && '
IN = 'cd "$RALPH_WORKSPACE" && '
EDIT = "echo more >> file.txt"
# As somebody would in another terminal: nothing of the session is in the environment.
ELSEWHERE = f'cd "$RALPH_PROJECT" && env -u RALPH_SESSION_ID -u RALPH_AGENT_ID {PROGRAM}'


def session(repo: Repo, agent: str, *options: str, prepared: str = "") -> Result:
    """Run a session of one iteration, unless options say more, after something was done in the checkout."""
    repo.write(".gitignore", ".ralph/worktrees/\n*.swp\n")
    repo.commit("second")
    if prepared:
        command_line(repo, prepared)
    return run(repo.path, "-n", "1", *options, "--", "sh", "-ec", agent)


def command_line(repo: Repo, words: str) -> None:
    """Type something in the main checkout."""
    assert os.waitstatus_to_exitcode(os.system(f"cd {shlex.quote(str(repo.path))} && {words}")) == 0  # noqa: S605


def leaks(result: Result) -> list[str]:
    """Return what was found during the first iteration, ids of objects left out."""
    assert result.status == 0, result.stderr
    found = result.report["leaks"]
    assert all(line.startswith("during iteration 1: ") for line in found)
    return [re.sub(r"\b[0-9a-f]{7}\b", "ID", line.removeprefix("during iteration 1: ")) for line in found]


FILES = {
    "a tracked file": ("", EDIT, ["file.txt (modified)"]),
    "by absolute path": ("", 'echo x > "$RALPH_PROJECT/file.txt"', ["file.txt (modified)"]),
    "as long as before": ("", "printf 'eno\\n' > file.txt", ["file.txt (modified)"]),
    "time set back": (
        "",
        "cp -p file.txt ../old; printf 'eno\\n' > file.txt; touch -r ../old file.txt",
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
        "cp -p file.txt ../old; printf 'owt\\n' > file.txt; touch -r ../old file.txt",
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
    "stashed": (EDIT, "git stash -q", ["the stash changed", "file.txt (restored)"]),
    "stashed inside": ("", f"{IN}{EDIT}; git stash -q", ["the stash changed"]),
    "an older stash dropped": (
        f"{EDIT}; git stash -q; {EDIT}; {EDIT}; git stash -q",
        "git stash drop -q stash@{1}",
        ["the stash changed"],
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
def test_a_change_is_told(repo: Repo, prepared: str, agent: str, found: list[str]) -> None:
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
    told = [told for told in result.events if told["event"].startswith("leak.")]
    assert (leaks(result), told) == ([], [])


def test_the_rule_of_another_session_does_not_count(repo: Repo) -> None:
    """It is added where somebody has taken it out: that counts, the other session's start does not."""
    take_out = f"{OUT}: > .gitignore; {ELSEWHERE} run -n 1 -- true >&2"
    result = run(repo.path, "-n", "2", "--", "sh", "-c", take_out)
    assert result.report["leaks"] == []
    assert (repo.path / ".gitignore").read_text() == ".ralph/worktrees/\n"


def test_the_words_accuse_nobody(repo: Repo) -> None:
    """One line and a hint: what has changed, when, and where to look; the exit report names it."""
    result = session(repo, f"{OUT}{EDIT}; git branch side")
    (told,) = result.warnings
    created = f"branch side created at {repo.head[:7]}"
    assert (told["event"], told["message"], told["hint"]) == (
        "leak.found",
        f"changed outside the worktree during iteration 1: {created}, file.txt (modified)",
        f"made by the agent or another program: git -C {repo.path} status; git -C {repo.path} diff HEAD",
    )
    assert result.directory is not None
    report = reports.read(result.directory / "report.json")
    assert report is not None
    rows = reports.summary(report, repo.path, result.directory / "output.log").splitlines()
    assert [row.split(maxsplit=1)[1] for row in rows if row.startswith("  outside")] == [
        f"during iteration 1: {created}",
        "during iteration 1: file.txt (modified)",
    ]


def test_many_changes_are_counted(repo: Repo) -> None:
    """Ten are named, wherever they are told."""
    result = session(repo, f"{OUT}for n in $(seq 10 30); do echo > new-$n; done")
    named = [f"new-{number} (new)" for number in range(10, 20)]
    assert leaks(result) == [*named, "and 11 more"]
    assert result.warnings[0]["message"].endswith(": " + ", ".join([*named, "and 11 more"]))


def test_no_value_of_the_configuration_is_told(repo: Repo) -> None:
    """Nor an address in a key: there may be passwords in both."""
    agent = (
        f"{OUT}git config http.https://a:secret@x.invalid/.extraHeader secret;"
        " git config url.https://secret@x.invalid/.insteadOf x:; git config remote.origin.url secret"
    )
    result = session(repo, agent)
    assert leaks(result) == [
        ".git/config changed: http.….extraheader, remote.origin.url, url.….insteadof",
    ]
    assert not any("secret" in str(told) for told in result.warnings)


def test_each_iteration_has_its_own(repo: Repo) -> None:
    """What one has changed is not told of the next one; with report, the default, the loop goes on."""
    agent = f'{OUT}[ "$RALPH_ITERATION" = 2 ] || echo "$RALPH_ITERATION" >> file.txt'
    result = session(repo, agent, "-n", "3")
    assert result.ending == ("max-iterations", 3, 0)
    assert result.report["leaks"] == [f"during iteration {n}: file.txt (modified)" for n in (1, 3)]


def test_stop_ends_the_loop(repo: Repo) -> None:
    """After that iteration; what it has left is saved as always."""
    agent = f'echo "$RALPH_ITERATION" > work; [ "$RALPH_ITERATION" = 1 ] || {{ {OUT}{EDIT}; }}'
    result = session(repo, agent, "-n", "5", "--on-leak", "stop")
    assert result.ending == ("leak", 2, 125)
    assert result.report["leaks"] == ["during iteration 2: file.txt (modified)"]
    assert repo.show(f"{result.report['saved']}:work") == b"2\n"


def test_stop_ends_no_loop_that_keeps_to_its_worktree(repo: Repo) -> None:
    """Negative control."""
    result = session(repo, f"{EDIT}; git commit -qam x", "-n", "3", "--on-leak", "stop")
    assert (result.ending, result.report["leaks"]) == (("max-iterations", 3, 0), [])


@pytest.mark.parametrize("by", ["variable", "file"])
def test_stop_by_other_means(repo: Repo, by: str) -> None:
    """Like every option."""
    if by == "file":
        repo.write(".ralph/config.toml", 'on_leak = "stop"\n')
    env = {"RALPH_WRAP_ON_LEAK": "stop"} if by == "variable" else {}
    result = run(repo.path, "-n", "2", "--", "sh", "-c", f"{OUT}{EDIT}", env=env)
    assert result.ending == ("leak", 1, 125)


ASK = (
    f"{sys.executable} -c 'import sys; from pathlib import Path;"
    " from ralph_wrap.state.stop_request import How, ask;"
    ' ask(Path(sys.argv[1]), How.AFTER_ITERATION)\' "$RALPH_PROJECT/.ralph/run/sessions/$RALPH_SESSION_ID"'
)


@pytest.mark.parametrize(
    ("agent", "options", "ending"),
    [
        ("echo '<promise>COMPLETE</promise>'", (), ("promise", 1, 0)),
        ("exit 3", (), ("leak", 1, 125)),
        ("exit 3", ("--max-failures", "1"), ("leak", 1, 125)),
        ("true", ("-n", "1"), ("leak", 1, 125)),
        ("exec sleep 60", ("--max-time", "1s"), ("max-time", 1, 124)),
        ("exec sleep 60", ("--iteration-timeout", "500ms"), ("leak", 1, 125)),
        (ASK, (), ("stop", 1, 0)),
        ("kill -TERM $PPID; exec sleep 60", (), ("signal", 1, 143)),
    ],
    ids=["promise", "failure", "failures", "last", "time", "too long", "asked", "signal"],
)
def test_what_else_ends_the_loop(
    repo: Repo, agent: str, options: tuple[str, ...], ending: tuple[str, int, int]
) -> None:
    """Whatever ends it, and with whatever status, the change is in the report."""
    result = session(repo, f"{OUT}{EDIT}; {agent}", "-n", "5", "--on-leak", "stop", *options)
    assert (result.ending, result.report["leaks"]) == (ending, ["during iteration 1: file.txt (modified)"])


@pytest.mark.parametrize("on_leak", ["report", "stop"])
def test_a_change_in_a_pause_is_told_as_such(repo: Repo, on_leak: str) -> None:
    """No agent has worked then, so it ends no loop either."""
    with Session(repo.path, "-n", "2", "--delay", "1s", "--on-leak", on_leak, "--", "true") as paused:
        paused.wait_for("iteration.ended")
        repo.write("new", "x")
        result = paused.finish()
    assert (result.ending, result.report["leaks"]) == (
        ("max-iterations", 2, 0),
        ["after iteration 1: new (new)"],
    )


def test_a_change_during_setup_is_told_as_such(repo: Repo) -> None:
    """An installer that sets hooks up for everybody is a usual one."""
    repo.write(".ralph/config.toml", 'setup = "git config core.hooksPath hooks"\n')
    result = run(repo.path, "-n", "1", "--", "true", env={"RALPH_TRUST": "1"})
    assert (result.status, result.report["leaks"]) == (
        0,
        ["during setup: .git/config changed: core.hookspath"],
    )


def test_a_change_by_somebody_else_is_told_in_the_same_words(repo: Repo) -> None:
    """The user, who works in the main checkout while the agent waits for its prompt's end."""
    fifo = repo.path.parent / "fifo"
    os.mkfifo(fifo)
    with Session(repo.path, "-n", "1", "--", "cat", fifo) as waiting:
        waiting.wait_for("agent.started")
        repo.write("file.txt", "two\n")
        fifo.write_text("go on")
        result = waiting.finish()
    assert leaks(result) == ["file.txt (modified)"]


def test_in_the_plain_project_there_is_no_outside(repo: Repo) -> None:
    """What is changed there is the work."""
    result = session(repo, EDIT, "--isolation", "off")
    assert (result.status, result.report["leaks"], result.warnings) == (0, None, [])


def test_after_a_fallback_there_is_no_outside(repo: Repo, tmp_path: Path) -> None:
    """Also where it was looked at already."""
    path = shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;')
    result = run(repo.path, "-n", "1", "--", "sh", "-c", EDIT, env={"PATH": path})
    assert (result.status, result.report["leaks"]) == (0, None)
    assert [told["event"] for told in result.warnings] == ["isolation.fell_back"]


def test_a_session_inside_another_one_looks_at_the_project(repo: Repo, tmp_path: Path) -> None:
    """The worktree that it was started in is the outer session's business."""
    script = tmp_path / "inner.sh"
    script.write_text(f'echo x > "{repo.path}/new"\necho x > "$OUTER/inside"\n')
    agent = f'OUTER=$RALPH_WORKSPACE {PROGRAM} run -n 1 -- sh "{script}" >&2'
    result = session(repo, agent)
    found = [path.read_text() for path in sorted(repo.path.glob(".ralph/run/sessions/*/report.json"))]
    assert leaks(result) == ["new (new)"]
    assert [text.count("during iteration 1: new (new)") for text in found] == [1, 1]
    assert not any("inside (new)" in text for text in found)


def test_a_checkout_of_the_users_own(repo: Repo, tmp_path: Path) -> None:
    """A linked worktree is a project like another: it is what is looked at."""
    repo.git("worktree", "add", "-q", tmp_path / "linked")
    linked = Repo(tmp_path / "linked")
    agent = f"{OUT}{EDIT}; git config --worktree core.quotePath off; echo x >> {repo.path}/file.txt"
    repo.git("config", "extensions.worktreeConfig", "true")
    result = run(linked.path, "-n", "1", "--", "sh", "-c", agent)
    assert leaks(result) == [
        ".git/worktrees/linked/config.worktree changed: core.quotepath",
        "file.txt (modified)",
    ]


def test_a_submodule_of_the_main_checkout(repo: Repo, tmp_path: Path) -> None:
    """A file in it, and another commit."""
    other = make_repo(tmp_path / "other")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other.path, "vendor")
    repo.commit("with a submodule")
    result = session(repo, f"{OUT}echo x >> vendor/file.txt")
    assert leaks(result) == ["vendor (modified)"]


def test_before_the_first_commit_there_is_no_worktree(tmp_path: Path) -> None:
    """And so no outside."""
    empty = make_repo(tmp_path / "empty", empty=True)
    result = run(empty.path, "-n", "1", "--", "sh", "-c", "echo x > new")
    assert (result.status, result.report["leaks"]) == (0, None)


def test_a_repository_that_points_elsewhere(repo: Repo) -> None:
    """By ``.git/commondir`` it can be made another one for every git; that comes first."""
    assert leaks(session(repo, f"{OUT}echo /elsewhere > .git/commondir"))[0] == ".git/commondir created"


def test_what_cannot_be_looked_at_is_told_once(repo: Repo) -> None:
    """The loop goes on, also with stop; what cannot be compared is no change."""
    agent = f"{OUT}: > .git/index.new; mv .git/index .git/kept; echo broken > .git/index"
    result = session(repo, agent, "-n", "3", "--on-leak", "stop")
    assert result.ending == ("max-iterations", 3, 0)
    assert [told["event"] for told in result.warnings].count("leak.unknown") == 1


def test_what_changed_while_nothing_could_be_seen_is_told_later(repo: Repo) -> None:
    """Compared is with the last look that was one."""
    agent = f"""{OUT}case $RALPH_ITERATION in
        1) cp .git/index ../index; echo broken > .git/index; echo x > new ;;
        2) cp ../index .git/index ;;
    esac"""
    result = session(repo, agent, "-n", "2")
    assert result.report["leaks"] == ["during iteration 2: new (new)"]


def test_a_git_that_hangs_does_not_outlive_a_signal(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """While it looks after an iteration; the next steps are done all the same."""
    flag = tmp_path / "flag"
    path = shim_git(
        tmp_path / "shim", f'*"porcelain=v2"*) if [ -e {flag} ]; then echo > {flag}.on; exec sleep 60; fi ;;'
    )
    agent = script(f"echo x > work; touch {flag}")
    with Session(repo.path, "-n", "2", "--", agent, env={"PATH": path}) as hanging:
        hanging.wait_for("agent.exited")
        eventually((tmp_path / "flag.on").exists, "git at work")
        hanging.process.terminate()
        result = hanging.finish()
    assert (result.status, result.report["saved_paths"]) == (143, ["work"])
    assert "leak.unknown" in result.names
