"""Worktrees for Python programs: as a context, one by one, and for an agent run in it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ralph_wrap import (
    AgentResult,
    Session,
    Settings,
    Worktree,
    add_worktree,
    branch_exists,
    current_worktree,
    list_worktrees,
    remove_worktree,
    run_agent,
    worktree_exists,
)
from ralph_wrap.errors import (
    AgentError,
    AgentNotFoundError,
    BranchBusyError,
    ConflictError,
    GitTooOldError,
    IsolationError,
    NotARepositoryError,
    NotFoundError,
    NotOursError,
    RalphError,
    RefusedError,
    UsageError,
)
from tests.support.repo import Repo, make_repo
from tests.support.shim import shim_git
from tests.support.wait import eventually

PWD = ("sh", "-c", "pwd; cat")

BAD_NAMES = [
    *[
        "",
        ".",
        "..",
        "a/../b",
        "../up",
        "-x",
        "--force",
        "HEAD",
        "@",
        "@{-1}",
        "a.lock",
        "a.lock/b",
        "/a",
        "a/",
    ],
    *[
        "a/",
        "a\nb",
        "a\0b",
        "a\x7fb",
        "a\x1bb",
        "\udcff",
        "a b",
        "a:b",
        "a~1",
        "a*",
        "n" * 300,
        "\u00fc" * 150,
    ],
]


@pytest.fixture
def project(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return the repository, as the current directory of this process."""
    monkeypatch.chdir(repo.path)
    return repo


def _place(project: Repo, name: str) -> Path:
    return project.path / ".ralph/worktrees" / name


def _trees(project: Repo) -> list[Path]:
    return [Path(path) for path in project.worktrees()]


def _names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def _aside(project: Repo, branch: str = "theirs") -> Path:
    """Have a worktree that is not ours."""
    path = project.path.parent / branch
    project.git("worktree", "add", "-q", "-b", branch, path)
    return path


# Create or reuse, create branch from base if missing, explicit path, callbacks, error state without crash


def test_a_worktree_is_created(project: Repo) -> None:
    """In its place, on a new branch, with the files; the project sees nothing but the rule."""
    with Worktree("topic") as tree:
        assert (tree.path, tree.branch, tree.state) == (_place(project, "topic"), "topic", "ready")
        assert (tree.path / "file.txt").read_text() == "one\n"
        assert project.git("symbolic-ref", "HEAD", cwd=tree.path) == "refs/heads/topic"
    assert tree.state == "closed"
    assert project.git("status", "--porcelain") == "?? .gitignore"


def test_a_worktree_stays_unless_it_is_to_be_cleaned_up(project: Repo) -> None:
    """And bears our mark, so that the other tools know it."""
    with Worktree("topic") as tree:
        pass
    assert _trees(project) == [tree.path]
    remove_worktree(tree.path)
    assert _trees(project) == []


@pytest.mark.parametrize(("base", "expected"), [(None, "HEAD"), ("v1", "v1"), ("HEAD~1", "HEAD~1")])
def test_a_branch_is_created_from_its_base(project: Repo, base: str | None, expected: str) -> None:
    """HEAD, unless something else is said."""
    project.git("tag", "-a", "-m", "a tag", "v1")
    project.commit("second")
    project.commit("third")
    with Worktree("topic", base=base):
        assert project.git("rev-parse", "topic") == project.git("rev-parse", f"{expected}^{{commit}}")


def test_an_existing_branch_is_checked_out(project: Repo) -> None:
    """It is not moved, whatever base is said."""
    project.git("branch", "topic")
    tip = project.head
    project.commit("second")
    with Worktree("topic", base="main"):
        assert project.git("rev-parse", "topic") == tip


@pytest.mark.parametrize("name", ["sub/dir", "ralph/a3f2", "\u00fc", "a;b$(x)'", "a" * 240])
def test_unusual_names_of_branches(project: Repo, name: str) -> None:
    """Each worktree is a single directory below the place for worktrees, so none is inside another."""
    with Worktree(name) as tree:
        assert tree.path.parent == project.path / ".ralph/worktrees"
        assert project.git("symbolic-ref", "--short", "HEAD", cwd=tree.path) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_branch_can_have(project: Repo, name: str) -> None:
    """A name leads nowhere, and nothing is made for it."""
    tree = Worktree(name)
    with pytest.raises(UsageError), tree:
        pass
    assert (tree.state, project.branches(), _trees(project)) == ("error", ["main"], [])


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_an_explicit_path(project: Repo, relative: bool) -> None:
    """Anywhere, also with parents that are not there; nothing of ours is made in the project for it."""
    path = project.path.parent / "else where" / "deep"
    given = os.path.relpath(path, project.path) if relative else path
    with Worktree("topic", path=given) as tree:
        assert (tree.path, _trees(project)) == (path, [path])
    assert not (project.path / ".gitignore").exists()


def test_another_project(project: Repo, tmp_path: Path) -> None:
    """Relative paths, and the default one, are its own."""
    other = make_repo(tmp_path / "other")
    with Worktree("topic", project=other.path) as tree, Worktree("two", project=other.path, path="x") as two:
        assert (tree.path, two.path) == (_place(other, "topic"), other.path / "x")
    assert project.branches() == ["main"]


@pytest.mark.usefixtures("project")
def test_a_worktree_at_the_path_is_reused() -> None:
    """With what is in it."""
    with Worktree("topic") as tree:
        (tree.path / "new").touch()
    with Worktree("topic") as again:
        assert again.path == tree.path
        assert (again.path / "new").exists()


def test_a_path_is_compared_by_where_it_leads(project: Repo, tmp_path: Path) -> None:
    """A symlink, or a detour, leads to the same worktree."""
    path = _aside(project)
    (tmp_path / "link").symlink_to(tmp_path)
    with Worktree("theirs", path=tmp_path / "link" / "home" / ".." / "theirs") as tree:
        assert tree.path == path


def test_a_worktree_that_has_the_branch_is_reused(project: Repo) -> None:
    """Wherever it is, if no path was given; it is somebody's, so it is not cleaned up."""
    path = _aside(project)
    with Worktree("theirs", cleanup=True) as tree:
        assert tree.path == path
    assert _trees(project) == [path]


def test_an_inner_worktree_belongs_to_the_same_project(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has changed into its worktree makes the next one beside it."""
    with Worktree("outer") as outer:
        monkeypatch.chdir(outer.path)
        with Worktree("inner") as inner:
            assert inner.path == _place(project, "inner")
        monkeypatch.chdir(project.path)


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        (lambda p: _place(p, "topic").mkdir(parents=True), ConflictError, "already exists"),
        (lambda p: make_repo(_place(p, "topic")), ConflictError, "already exists"),
        (lambda p: p.git("worktree", "add", "-q", "-b", "x", _place(p, "topic")), ConflictError, "is on x"),
        (lambda p: p.git("worktree", "add", "-q", "--detach", _place(p, "topic")), ConflictError, "on no br"),
        (lambda p: p.git("checkout", "-q", "-b", "topic"), BranchBusyError, "is checked out in"),
        (lambda p: (p.path / ".ralph").symlink_to(p.path.parent), IsolationError, "is a symlink"),
        (lambda p: _aside(p, "topic").rename(p.path.parent / "gone"), ConflictError, "does not exist"),
    ],
    ids=["directory", "repository", "other branch", "detached", "main checkout", "symlink", "gone"],
)
def test_what_is_in_the_way(
    project: Repo, prepare: Callable[[Repo], object], error: type[RalphError], message: str
) -> None:
    """It is named, and left alone."""
    prepare(project)
    before = (project.branches(), _trees(project))
    with pytest.raises(error, match=message), Worktree("topic", cleanup=True):
        pass
    assert (project.branches(), _trees(project)) == before


@pytest.mark.parametrize("branch", ["main", "theirs"])
def test_a_checkout_that_somebody_works_in_is_not_reused(project: Repo, branch: str) -> None:
    """The main one, nor the linked one that we are called from: the user's own files are in it."""
    path = _aside(project)
    with pytest.raises(BranchBusyError, match="is checked out in"), Worktree(branch, project=path):
        pass


def test_a_branch_that_is_elsewhere_than_the_path(project: Repo, tmp_path: Path) -> None:
    """Two worktrees cannot be on one branch."""
    _aside(project)
    with (
        pytest.raises(BranchBusyError, match="theirs is checked out in"),
        Worktree("theirs", path=tmp_path / "x"),
    ):
        pass


@pytest.mark.usefixtures("project")
def test_a_worktree_that_was_replaced_is_not_reused() -> None:
    """Another repository in its place is not ours to work in."""
    with Worktree("topic") as tree:
        pass
    tree.path.rename(tree.path.with_name("moved"))
    make_repo(tree.path)
    with pytest.raises(ConflictError, match="is not a complete worktree"), Worktree("topic"):
        pass


def test_a_half_made_worktree_is_not_reused(project: Repo) -> None:
    """Whoever made it was killed before every file was there."""
    with Worktree("topic"):
        pass
    (project.path / ".git/worktrees/topic/index").unlink()
    with pytest.raises(ConflictError, match="is not a complete worktree"), Worktree("topic"):
        pass


def test_a_sessions_worktree_is_not_reused(project: Repo) -> None:
    """It would go when the session ends."""
    with Session(Settings(project=project.path, command=("true",))) as session:
        branch = session.workspace.branch
        assert branch is not None
        with pytest.raises(BranchBusyError, match="is checked out in"), Worktree(branch):
            pass


@pytest.mark.parametrize(
    ("base", "error"), [("nowhere", NotFoundError), ("--all", NotFoundError), ("a\0b", NotFoundError)]
)
def test_a_base_that_is_no_commit(project: Repo, base: str, error: type[RalphError]) -> None:
    """Nothing is made."""
    with pytest.raises(error, match="names no commit"), Worktree("topic", base=base):
        pass
    assert project.branches() == ["main"]


def test_no_commit_yet(tmp_path: Path) -> None:
    """There is nothing to check out."""
    empty = make_repo(tmp_path / "empty", empty=True)
    with pytest.raises(IsolationError, match="no commit yet"), Worktree("topic", project=empty.path):
        pass


def test_no_repository(tmp_path: Path) -> None:
    """The error says so, and the status that goes with it."""
    with pytest.raises(NotARepositoryError), Worktree("topic", project=tmp_path / "home"):
        pass


@pytest.mark.usefixtures("project")
def test_on_ready_gets_the_path() -> None:
    """Before the block, of a worktree that is whole."""
    told: list[list[str]] = []
    with Worktree("topic", on_ready=lambda path: told.append(_names(path))):
        assert told == [[".git", "file.txt"]]


@pytest.mark.usefixtures("project")
def test_the_error_state() -> None:
    """The callback gets the error in a worktree whose state says so; then it is raised."""
    seen: list[object] = []
    tree = Worktree("topic", base="nowhere", on_error=lambda error: seen.extend((error, tree.state)))
    assert tree.state == "pending"
    with pytest.raises(NotFoundError) as caught, tree:
        pass
    assert seen == [caught.value, "error"]
    with pytest.raises(RuntimeError, match="no path before the program enters its block"):
        _ = tree.path


@pytest.mark.usefixtures("project")
def test_an_error_of_the_block_is_none_of_the_worktrees() -> None:
    """It is raised on; the callback is for what prevents the worktree."""
    seen: list[Exception] = []
    with pytest.raises(ZeroDivisionError), Worktree("topic", on_error=seen.append) as tree:
        _ = 1 / 0
    assert (seen, tree.state, current_worktree()) == ([], "closed", None)


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_callback_that_fails(project: Repo, cleanup: bool) -> None:
    """There is no block, and what was made for it goes as it would at its end."""
    seen: list[Exception] = []

    def fail(_path: Path) -> None:
        raise ZeroDivisionError

    tree = Worktree("topic", on_ready=fail, on_error=seen.append, cleanup=cleanup)
    with pytest.raises(ZeroDivisionError), tree:
        pass
    assert ([type(error) for error in seen], tree.state) == ([ZeroDivisionError], "error")
    assert (current_worktree(), bool(_trees(project))) == (None, not cleanup)


def test_a_failed_attempt_leaves_nothing(
    project: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branch, registration and directory are undone."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;'))
    with pytest.raises(IsolationError), Worktree("topic"):
        pass
    assert (project.branches(), _trees(project)) == (["main"], [])
    assert not _place(project, "topic").exists()


def test_git_that_is_too_old(project: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named by its version."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" version "*) echo git version 2.14.0; exit ;;'))
    with pytest.raises(GitTooOldError), Worktree("topic", project=project.path):
        pass


def test_hooks_are_left_on_in_the_worktree(project: Repo) -> None:
    """None runs for us; whoever commits there has the project's, and its configuration is as it was."""
    ran = project.path.parent / "ran"
    for name in ("post-checkout", "pre-commit"):
        project.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >> {ran}\n", executable=True)
    before = (project.path / ".git/config").read_text()
    with Worktree("topic") as tree:
        assert not ran.exists()
        project.git("commit", "--allow-empty", "-qm", "x", cwd=tree.path)
    assert ran.read_text() == "pre-commit\n"
    assert (project.path / ".git/config").read_text() == before


# Cleanup only of what it created; failure to clean up is a warning


def test_cleanup_removes_what_it_created(project: Repo) -> None:
    """The branch stays, with what was committed to it."""
    with Worktree("topic", cleanup=True) as tree:
        (tree.path / "new").touch()
        project.git("add", "new", cwd=tree.path)
        project.git("commit", "-qm", "new", cwd=tree.path)
    assert (_trees(project), tree.path.exists()) == ([], False)
    assert project.git("ls-tree", "--name-only", "topic") == "file.txt\nnew"


def test_cleanup_leaves_what_was_there(project: Repo) -> None:
    """It was made by another block, or by somebody else."""
    with Worktree("topic") as tree:
        pass
    with Worktree("topic", cleanup=True):
        pass
    assert _trees(project) == [tree.path]


def test_cleanup_after_an_exception(project: Repo) -> None:
    """On every way out of the block."""
    with pytest.raises(ZeroDivisionError), Worktree("topic", cleanup=True):
        _ = 1 / 0
    assert _trees(project) == []


def _uncommitted(path: Path) -> None:
    (path / "file.txt").write_text("two\n")


def _untracked(path: Path) -> None:
    (path / "new").touch()


def _on_no_branch(path: Path) -> None:
    Repo(path).git("checkout", "-q", "--detach")
    Repo(path).commit("alone")


def _nested(path: Path) -> None:
    make_repo(path / "nested")


def _replaced(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.mkdir()
    (path / "precious").touch()


@pytest.mark.parametrize(
    "work", [_uncommitted, _untracked, _on_no_branch, _nested, _replaced], ids=lambda work: work.__name__
)
def test_cleanup_never_loses_work(project: Repo, work: Callable[[Path], None]) -> None:
    """The worktree stays with all that is in it, and that is a warning."""
    tree = Worktree("topic", cleanup=True)
    tree.__enter__()
    work(tree.path)
    before = sorted(tree.path.parent.rglob("*"))
    with pytest.warns(RuntimeWarning, match="worktree of topic kept: "):
        tree.__exit__()
    assert sorted(tree.path.parent.rglob("*")) == before
    assert (tree.state, len(_trees(project))) == ("closed", 1)


def test_cleanup_leaves_others_their_worktree(project: Repo) -> None:
    """Another block has found it, in this process or elsewhere, and still works there."""
    tree = Worktree("topic", cleanup=True)
    tree.__enter__()
    with Worktree("topic"):
        with pytest.warns(RuntimeWarning, match="another block uses"):
            tree.__exit__()
        assert _trees(project) == [tree.path]


def test_cleanup_does_not_wait_for_those_who_have_left(project: Repo) -> None:
    """Only who is in the worktree keeps it."""
    with Worktree("topic", cleanup=True), Worktree("topic"):
        pass
    assert _trees(project) == []


@pytest.mark.usefixtures("project")
def test_no_descriptor_is_left() -> None:
    """However a block ends; thousands of blocks in one program are fine."""

    def fail(_path: Path) -> None:
        raise ZeroDivisionError

    before = os.listdir("/proc/self/fd")  # noqa: PTH208 -- names that may be gone by now
    trees = [
        Worktree("one"),
        Worktree("two", cleanup=True),
        Worktree("three", on_ready=fail),
        Worktree("four", base="nowhere"),
    ]
    for tree in trees:
        with contextlib.suppress(NotFoundError, ZeroDivisionError), tree:
            pass
    assert [tree.state for tree in trees] == ["closed", "closed", "error", "error"]
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_failure_to_clean_up_names_the_block(project: Repo) -> None:
    """The warning points at the line of whoever wrote it, says what is left, and raises nothing."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with Worktree("topic", cleanup=True) as tree:
            _untracked(tree.path)
    [warning] = seen
    assert warning.filename == __file__
    path = _place(project, "topic")
    assert str(warning.message) == f"worktree of topic kept: {path} would be lost with: uncommitted: new"


# Context propagation, nested shadowing, explicit cwd wins


def _branch() -> str | None:
    tree = current_worktree()
    return tree.branch if tree else None


@pytest.mark.usefixtures("project")
def test_the_inner_worktree_shadows_the_outer() -> None:
    """None outside; after the inner block the outer one is back."""
    seen = [_branch()]
    with Worktree("outer"):
        seen.append(_branch())
        with Worktree("inner"):
            seen.append(_branch())
        seen.append(_branch())
    assert [*seen, _branch()] == [None, "outer", "inner", "outer", None]


@pytest.mark.usefixtures("project")
def test_blocks_that_end_in_another_order() -> None:
    """One that has ended never comes back."""
    outer, inner = Worktree("outer"), Worktree("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__()
    assert _branch() == "inner"
    inner.__exit__()
    assert _branch() is None


@pytest.mark.usefixtures("project")
def test_a_block_within_itself() -> None:
    """It would end twice; the same object may be used again afterwards."""
    tree = Worktree("topic")
    with tree, pytest.raises(RuntimeError, match="is already in the block of"), tree:
        pass
    with tree:
        assert _branch() == "topic"


@pytest.mark.usefixtures("project")
def test_threads_that_copy_the_context_see_their_own() -> None:
    """A plain thread starts outside, one with a copy of the context inside; it enters for itself alone."""
    seen: dict[str, str | None] = {}

    def enter() -> None:
        with Worktree("inner"):
            seen["entered"] = _branch()

    with Worktree("outer"):
        one, other = contextvars.copy_context(), contextvars.copy_context()
        works: list[Callable[[], object]] = [
            lambda: seen.update(plain=_branch()),
            lambda: one.run(lambda: seen.update(copied=_branch())),
            lambda: other.run(enter),
        ]
        for work in works:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert seen == {"plain": None, "copied": "outer", "entered": "inner"}
        assert _branch() == "outer"


@pytest.mark.usefixtures("project")
def test_an_agent_works_in_the_current_worktree() -> None:
    """The innermost; outside of all in the current directory."""
    with Worktree("outer"), Worktree("inner") as tree:
        assert run_agent("the prompt", PWD) == AgentResult(0, f"{tree.path}\nthe prompt")
    assert run_agent("", PWD) == AgentResult(0, f"{Path.cwd()}\n")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("kind", [str, Path])
def test_an_explicit_cwd_wins(tmp_path: Path, kind: type) -> None:
    """Also over the current worktree."""
    with Worktree("topic"):
        assert run_agent("", PWD, cwd=kind(tmp_path)).output == f"{tmp_path}\n"


def test_a_straggler_never_works_in_the_users_files(project: Repo) -> None:
    """A task that outlives its block, and the worktree, finds no directory rather than another one."""
    with Worktree("topic", cleanup=True):
        context = contextvars.copy_context()
    with pytest.raises(NotFoundError, match=str(_place(project, "topic"))):
        context.run(run_agent, "", PWD)


# Agents


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("agent", [None, "claude"])
def test_a_known_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None) -> None:
    """Its command line gets the prompt on standard input; claude is the default."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\ncat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    words = "-p --output-format stream-json --verbose --dangerously-skip-permissions"
    assert run_agent("do it", agent).output == f"{words}\ndo it"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"type":"result","subtype":"success","is_error":false,"result":"Done."}', AgentResult(0, "Done.")),
        ('{"type":"result","subtype":"success","is_error":true,"result":"No."}', AgentResult(1, "No.")),
    ],
    ids=["answer", "failure"],
)
def test_the_answer_of_a_known_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: AgentResult
) -> None:
    """What it says at the end, not the format that it says it in; a failure is one whatever its status."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{line}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert run_agent("do it", "claude") == expected


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 7"), AgentResult(7, "out\n")),
        (("sh", "-c", "kill -TERM $$"), AgentResult(143, "")),
        (("printf", r"\377"), AgentResult(0, "\ufffd")),
        (("sh", "-c", 'echo "${GIT_DIR-none}"'), AgentResult(0, "none\n")),
    ],
    ids=["status", "signal", "no text", "environment"],
)
def test_how_an_agent_ends(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], expected: AgentResult
) -> None:
    """Its status as a shell counts it, what it printed, and no variable that leads its git elsewhere."""
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert run_agent("", command) == expected


@pytest.mark.usefixtures("project")
def test_much_goes_in_and_out() -> None:
    """More than any pipe holds, without anybody reading in time."""
    prompt = "x" * (1 << 20)
    assert run_agent(prompt, ("sh", "-c", "cat; cat")).output == prompt


@pytest.mark.parametrize(
    ("agent", "error"),
    [
        ("no-such-agent", UsageError),
        ((), UsageError),
        (("no-such-command",), AgentNotFoundError),
        (("./no-such-command",), AgentNotFoundError),
        (("./file.txt",), AgentError),
    ],
)
@pytest.mark.usefixtures("project")
def test_agents_that_cannot_be_run(agent: str | tuple[str, ...], error: type[RalphError]) -> None:
    """Each with the error that says why."""
    with pytest.raises(error):
        run_agent("", agent)


def test_an_interrupted_program_ends_its_agent(project: Repo) -> None:
    """Ctrl-C does not reach the agent's process group by itself."""
    program = (
        "from ralph_wrap import run_agent\n"
        "agent = 'trap \"echo ended > ended; exit\" TERM; echo $$ > pid; sleep 600 & wait'\n"
        "run_agent('', ('sh', '-c', agent))\n"
    )
    pid = project.path / "pid"
    with subprocess.Popen((sys.executable, "-c", program), stderr=subprocess.DEVNULL) as running:
        try:
            eventually(lambda: pid.exists() and pid.read_text(), "the agent to start")
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == -signal.SIGINT
        finally:
            running.kill()
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
    assert (project.path / "ended").exists()


# async


def _finish(work: Awaitable[None]) -> None:
    async def run() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(run())


def test_an_async_block(project: Repo) -> None:
    """As the other one: current inside, cleaned up after."""

    async def work() -> None:
        async with Worktree("outer") as outer, Worktree("inner", cleanup=True) as inner:
            assert (outer.path, inner.path) == (_place(project, "outer"), _place(project, "inner"))
            assert _branch() == "inner"
            assert (await asyncio.to_thread(run_agent, "", PWD)).output == f"{inner.path}\n"
        assert _branch() is None

    _finish(work())
    assert _trees(project) == [_place(project, "outer")]


@pytest.mark.usefixtures("project")
def test_tasks_see_their_own() -> None:
    """Whatever others enter and leave meanwhile."""

    async def one(name: str, entered: asyncio.Barrier) -> str | None:
        async with Worktree(name):
            await entered.wait()
            return _branch()

    async def work() -> None:
        names = ["a", "b", "c", "a"]
        async with Worktree("outer"):
            entered = asyncio.Barrier(len(names))
            assert await asyncio.gather(*(one(name, entered) for name in names)) == names
            assert _branch() == "outer"

    _finish(work())


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Have checkout and status say that they have begun, by a file, and wait for another; return both."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    wait = f'*" read-tree --reset "*|*" status "*) touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "slow", wait))
    yield begun, go
    go.touch()


@pytest.mark.usefixtures("project")
def test_others_go_on_while_git_works(slow_git: tuple[Path, Path]) -> None:
    """The event loop is not blocked."""
    begun, go = slow_git

    async def enter() -> str | None:
        async with Worktree("topic"):
            return _branch()

    async def work() -> None:
        entering = asyncio.create_task(enter())
        while not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        assert not entering.done()
        go.touch()
        assert await entering == "topic"

    _finish(work())


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_task_that_is_cancelled_while_git_works(
    project: Repo, slow_git: tuple[Path, Path], cleanup: bool
) -> None:
    """What git makes in the end is not lost sight of."""
    begun, go = slow_git

    async def work() -> None:
        tree = Worktree("topic", cleanup=cleanup)
        entering = asyncio.create_task(tree.__aenter__())
        while not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        entering.cancel()
        go.touch()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert tree.state == "error"

    _finish(work())
    assert bool(_trees(project)) is not cleanup
    if not cleanup:
        assert project.git("status", "--porcelain", cwd=_place(project, "topic")) == ""


def test_an_async_failure_to_clean_up_is_a_warning(project: Repo) -> None:
    """And the worktree stays."""

    async def work() -> None:
        async with Worktree("topic", cleanup=True) as tree:
            _untracked(tree.path)

    with pytest.warns(RuntimeWarning, match="uncommitted: new"):
        _finish(work())
    assert _trees(project) == [_place(project, "topic")]


def test_a_task_that_is_cancelled_while_it_cleans_up(project: Repo, slow_git: tuple[Path, Path]) -> None:
    """It does so to the end, and still tells what was kept."""
    begun, go = slow_git

    async def end(tree: Worktree) -> None:
        async with tree:
            _untracked(tree.path)
            begun.unlink()
            go.unlink()

    async def work() -> None:
        go.touch()
        ending = asyncio.create_task(end(Worktree("topic", cleanup=True)))
        while go.exists() or not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        ending.cancel()
        go.touch()
        with pytest.raises(asyncio.CancelledError):
            await ending

    with pytest.warns(RuntimeWarning, match="uncommitted: new"):
        _finish(work())
    assert _trees(project) == [_place(project, "topic")]


@pytest.mark.usefixtures("project")
def test_an_async_error() -> None:
    """The callback gets it, then it is raised."""
    seen: list[Exception] = []

    async def work() -> None:
        async with Worktree("topic", base="nowhere", on_error=seen.append):
            pass

    with pytest.raises(NotFoundError) as caught:
        _finish(work())
    assert seen == [caught.value]


def test_many_want_the_same_branch_at_once(project: Repo) -> None:
    """One makes the worktree, the others find it whole."""
    found: list[tuple[Path, list[str]]] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        with Worktree("topic") as tree:
            found.append((tree.path, _names(tree.path)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(_place(project, "topic"), [".git", "file.txt"])] * 6


# Persists across loop iterations


def test_a_sessions_worktree_persists_across_loop_iterations(
    project: Repo, script: Callable[[str], str]
) -> None:
    """What one iteration leaves, the next one finds."""
    settings = Settings(project=project.path, command=(script("echo x >> log; cat log"),), max_iterations=3)
    with Session(settings) as session:
        session.run()
    assert session.report is not None
    assert project.show(f"{session.report.saved}:log") == b"x\nx\nx\n"


def test_a_context_persists_across_iterations_of_a_program(project: Repo) -> None:
    """A loop around the block works in the same worktree each time."""
    seen = []
    for _ in range(3):
        with Worktree("topic") as tree:
            seen.append(run_agent("", ("sh", "-c", "echo x >> log; cat log")).output)
    assert seen == ["x\n", "x\nx\n", "x\nx\nx\n"]
    assert _trees(project) == [tree.path]


# list_worktrees, add_worktree, remove_worktree, branch_exists, worktree_exists


def test_worktrees_are_listed_with_reasons(project: Repo) -> None:
    """From any directory of the repository; why one is locked, and why another could be pruned."""
    locked, gone = _aside(project, "locked"), _aside(project, "gone")
    project.git("worktree", "lock", "--reason", "a reason", locked)
    gone.rename(gone.with_name("moved"))
    infos = {info.branch: info for info in list_worktrees(locked)}
    assert infos["main"] == (project.path, "main", project.head, None, None)
    assert infos["locked"] == (locked, "locked", project.head, "a reason", None)
    assert infos["gone"].prunable
    assert [*infos.values()] == list_worktrees()


@pytest.mark.parametrize(
    "call",
    [
        list_worktrees,
        lambda: add_worktree("x", "x"),
        lambda: branch_exists("x"),
        lambda: worktree_exists("x"),
    ],
    ids=["list", "add", "branch", "exists"],
)
def test_outside_of_any_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    """That is an error and no answer."""
    monkeypatch.chdir(tmp_path / "home")
    with pytest.raises(NotARepositoryError):
        call()


@pytest.mark.parametrize("base", [None, "HEAD~1"])
def test_a_worktree_is_added(project: Repo, base: str | None) -> None:
    """On a new branch, at its base."""
    project.commit("second")
    path = add_worktree("../x", "topic", base)
    assert path == project.path.parent / "x"
    assert project.git("rev-parse", "HEAD", cwd=path) == project.git("rev-parse", base or "HEAD")
    assert project.git("symbolic-ref", "--short", "HEAD", cwd=path) == "topic"


def test_a_worktree_is_added_on_an_existing_branch(project: Repo) -> None:
    """If that is said."""
    project.git("branch", "topic")
    path = add_worktree("../x", "topic", create_branch=False)
    assert project.git("symbolic-ref", "--short", "HEAD", cwd=path) == "topic"


@pytest.mark.parametrize(
    ("path", "branch", "options", "error"),
    [
        ("../x", "there", {}, ConflictError),
        ("../x", "missing", {"create_branch": False}, NotFoundError),
        ("../x", "there", {"create_branch": False, "base": "main"}, UsageError),
        ("../x", "main", {"create_branch": False}, BranchBusyError),
        ("../x", "topic", {"base": "nowhere"}, NotFoundError),
        ("../x", "-b", {}, UsageError),
        ("../home", "topic", {}, ConflictError),
        (".", "topic", {}, ConflictError),
        ("loop", "topic", {}, ConflictError),
        ("a\0b", "topic", {}, UsageError),
    ],
)
def test_worktrees_that_cannot_be_added(
    project: Repo, path: str, branch: str, options: dict[str, str | bool], error: type[RalphError]
) -> None:
    """Each with the error that says why, and nothing is left of it."""
    project.git("branch", "there")
    (project.path / "loop").symlink_to("loop")
    with pytest.raises(error):
        add_worktree(path, branch, **options)  # type: ignore[arg-type]
    assert (project.branches(), _trees(project)) == (["main", "there"], [])


def test_a_worktree_is_removed(project: Repo) -> None:
    """Its branch stays."""
    path = add_worktree("../x", "topic")
    remove_worktree("../x")
    assert (path.exists(), _trees(project), project.branches()) == (False, [], ["main", "topic"])


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("force", [True, False])
def test_a_worktree_with_work_in_it_is_removed_by_force_alone(force: bool) -> None:
    """What would be lost is named."""
    path = add_worktree("../x", "topic")
    _untracked(path)
    if force:
        remove_worktree(path, force=True)
    else:
        with pytest.raises(RefusedError, match="uncommitted: new"):
            remove_worktree(path)
    assert path.exists() is not force


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    ("what", "error"),
    [("theirs", NotOursError), ("project", NotOursError), ("other", NotOursError), ("gone", NotFoundError)],
)
def test_what_we_did_not_make_is_not_removed(
    project: Repo, what: str, error: type[RalphError], force: bool
) -> None:
    """Not by force either."""
    _aside(project)
    make_repo(project.path.parent / "other")
    before = sorted(project.path.parent.glob("*/*"))
    with pytest.raises(error):
        remove_worktree(project.path.parent / what, force=force)
    assert sorted(project.path.parent.glob("*/*")) == before


def test_a_sessions_worktree_is_not_removed(project: Repo) -> None:
    """That is for the session to do."""
    with Session(Settings(project=project.path, command=("true",))) as session:
        with pytest.raises(NotOursError):
            remove_worktree(session.workspace.path, force=True)
        assert session.workspace.path.is_dir()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "content", ["", "gitdir: \0", "gitdir: loop", "gitdir: ../../.git", "x" * 5000], ids=range(5)
)
def test_a_pointer_that_leads_nowhere(content: str) -> None:
    """An agent may have written it: that is an error of ours, and nothing is removed."""
    path = add_worktree("../x", "topic")
    (path / ".git").write_text(content)
    (path / "loop").symlink_to("loop")
    with pytest.raises((NotOursError, NotFoundError)):
        remove_worktree(path, force=True)
    assert path.is_dir()


def test_branches_exist_or_do_not(project: Repo) -> None:
    """By their whole name, not by a pattern; what cannot be a name is none."""
    project.git("branch", "a/topic")
    project.git("tag", "v1")
    names = ["main", "a/topic", "a", "topic", "a/*", "v1", "HEAD", "", "refs/heads/main", "-h", "a\0b"]
    assert [name for name in names if branch_exists(name)] == ["main", "a/topic"]
    assert branch_exists("main", cwd=project.path)


def test_worktrees_exist_or_do_not(project: Repo, tmp_path: Path) -> None:
    """By where a path leads: relative, through symlinks, with detours."""
    path = _aside(project)
    gone = _aside(project, "gone")
    gone.rename(gone.with_name("moved"))
    (tmp_path / "link").symlink_to(path)
    paths: list[str | Path] = [
        path,
        "../theirs",
        "../link",
        tmp_path / "home/../theirs/",
        ".",
        gone,
        "../moved",
        "../home",
        "x",
    ]
    assert [worktree_exists(name) for name in paths] == [True] * 5 + [False] * 4
    assert worktree_exists("../theirs", cwd=project.path)
