"""No git of ours runs a program that the configuration of a submodule's repository names."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import status
from ralph_wrap.state.project import find_project
from ralph_wrap.worktree.leaks.observation import ObservedCheckout, RunningObservation
from ralph_wrap.worktree.save import fingerprints
from ralph_wrap.worktree.save.checkpoint import commit_all, snapshot
from tests.support.sessions import command, run
from tests.support.trees import ID, SESSION, make_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.trees import Tree

WORK = """
git init -q sub; cd sub; echo x > x; git add x; git commit -qm x; cd ..; git add sub; git commit -qm sub
cd sub; git config filter.x.clean 'touch {ran}; cat'; git config core.fsmonitor 'touch {ran}'
mkdir -p .git/info; echo '* filter=x' > .git/info/attributes; echo y > x; cd ..; echo new > new
"""
"""An agent makes a submodule, names programs in it, and changes a file in it and one beside it."""


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Return the file that the program of the agent makes."""
    return tmp_path / "ran"


@pytest.fixture
def tree(repo: Repo, ran: Path) -> Tree:
    """Return a worktree in which an agent has worked."""
    made = make_tree(repo)
    _work(made.path, ran)
    return made


def _work(directory: Path, ran: Path) -> None:
    subprocess.run(("sh", "-ec", WORK.format(ran=ran)), cwd=directory, check=True)
    ran.unlink(missing_ok=True)


def _fingerprint(tree: Tree) -> None:
    git = find_project(tree.repo.path, os.environ).git
    assert fingerprints.fingerprint(tree.linked.git(git), tree.path)


def _snapshot(tree: Tree) -> None:
    git = find_project(tree.repo.path, os.environ).git
    kept = snapshot(tree.linked, git, agent_id=ID, session=SESSION, number=1)
    assert "submodule sub: the uncommitted work in it" in kept.problems
    assert tree.repo.show(f"{kept.ref}:new") == b"new\n"


def _commit_each(tree: Tree) -> None:
    git = find_project(tree.repo.path, os.environ).git
    assert commit_all(tree.linked, git, "each iteration")
    assert tree.inside.show("HEAD:new") == b"new\n"


def _look_outside(tree: Tree) -> None:
    project = find_project(tree.repo.path, os.environ)
    checkout = ObservedCheckout.at(
        project.git, tree.path, tree.repo.path / ".git", tree.repo.path / "elsewhere", "ralph/beef"
    )
    with RunningObservation(checkout) as running:
        assert running.result().entries["sub"].state.endswith("changed inside")


LOOKS: dict[str, Callable[[Tree], None]] = {
    "fingerprint": _fingerprint,
    "snapshot": _snapshot,
    "commit_each": _commit_each,
    "look outside": _look_outside,
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("defended", [True, False])
def test_no_look_runs_a_program_of_a_submodule(
    tree: Tree, ran: Path, name: str, defended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of files is right, and what the submodule's configuration names runs only without defence."""
    if not defended:
        monkeypatch.setattr(status, "_NOT_INSIDE", "--ignore-submodules=none")
        monkeypatch.setattr(status, "submodules_in", lambda _: [])
    LOOKS[name](tree)
    assert ran.exists() != defended


@pytest.mark.parametrize("isolation", ["require", "clone", "off"])
def test_no_program_of_a_submodule_runs_in_a_session(repo: Repo, ran: Path, isolation: str) -> None:
    """From its first iteration to its end, with a snapshot or a commit for each."""
    work = f"[ $RALPH_ITERATION = 1 ] || exit 0; {WORK.format(ran=ran)} rm -f {ran}"
    ended = run(repo.path, "-n", "2", "--isolation", isolation, "--", "sh", "-ec", work)
    assert (ended.status, ran.exists()) == (0, False), ended.stderr


def test_no_program_of_a_submodule_in_the_checkout_runs(repo: Repo, ran: Path) -> None:
    """The agent has written to it earlier; the user starts sessions and worktrees, and merges."""
    _work(repo.path, ran)
    assert run(repo.path, "-n", "1", "--", "sh", "-ec", "echo a > a; git add a; git commit -qm a").status == 0
    assert command("worktree", "create", "some task", cwd=repo.path).status == 0
    branch = next(name for name in repo.branches() if name.startswith("ralph/"))
    assert command("merge", branch, cwd=repo.path).status == 0
    assert not ran.exists()
