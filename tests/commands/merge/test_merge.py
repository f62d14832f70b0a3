"""``ralph-wrap merge``: what lands, and in which way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import branches
from ralph_wrap.commands import merge as merging
from ralph_wrap.commands.merge import LandingResult, MergeMethod
from ralph_wrap.state import project
from ralph_wrap.system.log import lines_of
from tests.support.directory_listing import listing
from tests.support.merging import AAAA, branch, change_every_kind, files_of, is_clean, land, left, state
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually, never

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_branch_ahead_is_fast_forwarded(repo: Repo) -> None:
    """The checkout moves along; the branch stays, and nothing of ours is left."""
    before = repo.head
    tip = branch(repo, "aaaa", AAAA | {"gone": None})
    assert land(repo, "aaaa") == [
        LandingResult("aaaa", "ralph/aaaa", "main", "landed", "fast-forward", before, tip, 1)
    ]
    assert is_clean(repo, tip)
    assert (repo.path / "new" / "a").read_text() == "A\n"
    assert not (repo.path / "gone").exists()
    assert (repo.git("rev-parse", "ralph/aaaa"), left(repo)) == (tip, [])
    assert repo.git("reflog", "-1", "--format=%gs") == "ralph-wrap merge ralph/aaaa: fast-forward"


def test_a_merge_commit_is_made_where_it_is_needed(repo: Repo) -> None:
    """With the message of git, and the user's identity."""
    tip = branch(repo, "aaaa", AAAA)
    repo.write("mine", "mine\n")
    mine = repo.commit("mine")
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, landed.way, landed.commits) == ("landed", "merge", 1)
    assert is_clean(repo, str(landed.after))
    shown = repo.git("log", "-1", "--format=%P%n%s%n%an%n%cn", "main")
    assert shown == f"{mine} {tip}\nMerge branch 'ralph/aaaa'\nA. Tester\nA. Tester"
    assert (repo.show("main:file.txt"), repo.show("main:mine")) == (b"one\nA\n", b"mine\n")


def test_no_ff_makes_one_always(repo: Repo) -> None:
    """Also where the target is only behind."""
    before, tip = repo.head, branch(repo, "aaaa", AAAA)
    (landed,) = land(repo, "aaaa", method=MergeMethod.NO_FF)
    assert (landed.way, repo.git("log", "-1", "--format=%P", "main")) == ("merge", f"{before} {tip}")
    assert is_clean(repo, str(landed.after))


def test_a_squash_is_one_commit_that_lists_them(repo: Repo) -> None:
    """Oldest first; the branch is no parent of it."""
    first = branch(repo, "aaaa", AAAA, message="ein Anfang: größer")
    second = branch(repo, "aaaa", {"new/b": "B\n"}, message="# no comment")
    before = repo.head
    (landed,) = land(repo, "aaaa", method=MergeMethod.SQUASH)
    assert (landed.way, landed.commits) == ("squash", 2)
    assert is_clean(repo, str(landed.after))
    assert repo.git("log", "-1", "--format=%P%n%B", "main") == (
        f"{before}\nSquash branch 'ralph/aaaa': 2 commits\n\n"
        f"* ein Anfang: größer ({first[:12]})\n* # no comment ({second[:12]})\n"
    )
    assert repo.git("diff", "main", "ralph/aaaa") == ""


def test_a_rebase_keeps_authors_and_messages(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit anew, on top; what the target has already is left out."""
    monkeypatch.setenv("GIT_AUTHOR_NAME", "An Agent")
    branch(repo, "aaaa", {"a": "1\n"}, message="first")
    both = branch(repo, "aaaa", {"both": "2\n"}, message="in both")
    branch(repo, "aaaa", {"a": "3\n"}, message="# third\n\nbody")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A. Tester")
    repo.write("mine", "mine\n")
    repo.commit("mine")
    repo.git("cherry-pick", both)
    (landed,) = land(repo, "aaaa", method=MergeMethod.REBASE)
    assert landed.way == "rebase"
    assert is_clean(repo, str(landed.after))
    shown = repo.git("log", "-4", "--format=%an|%cn|%B%x00", "main").replace("\n\0", "\0").split("\0")
    assert [line.strip("\n") for line in shown[:4]] == [
        "An Agent|A. Tester|# third\n\nbody",
        "An Agent|A. Tester|first",
        "An Agent|A. Tester|in both",
        "A. Tester|A. Tester|mine",
    ]
    assert (repo.show("main:a"), repo.show("main:both")) == (b"3\n", b"2\n")


def test_what_becomes_empty_in_a_rebase_is_left_out(repo: Repo) -> None:
    """What was empty from the start stays."""
    branch(repo, "aaaa", {"a": "1\n"}, message="in main, with more")
    branch(repo, "aaaa", {}, message="empty from the start")
    branch(repo, "aaaa", {"b": "1\n"}, message="last")
    repo.write("a", "1\n")
    repo.write("c", "1\n")
    repo.commit("mine")
    land(repo, "aaaa", method=MergeMethod.REBASE)
    assert repo.git("log", "--format=%s", "main") == "last\nempty from the start\nmine\nfirst"


@pytest.mark.parametrize(
    "method", [MergeMethod.MERGE, MergeMethod.SQUASH, MergeMethod.REBASE, MergeMethod.NO_FF]
)
def test_nothing_to_do_for_what_has_landed(repo: Repo, method: MergeMethod) -> None:
    """Also a second time in the same way, where the branch is in no history."""
    branch(repo, "aaaa", AAAA)
    repo.write("mine", "mine\n")
    repo.commit("mine")
    assert [one.outcome for one in land(repo, "aaaa", method=method)] == ["landed"]
    before = state(repo)
    again = method if method is not MergeMethod.NO_FF else MergeMethod.MERGE
    assert [one.outcome for one in land(repo, "aaaa", method=again)] == ["nothing to do"]
    assert state(repo) == before


def test_what_was_squashed_is_not_merged_again(repo: Repo) -> None:
    """A merge commit that changes nothing says nothing."""
    branch(repo, "aaaa", AAAA)
    land(repo, "aaaa", method=MergeMethod.SQUASH)
    before = state(repo)
    assert [one.outcome for one in land(repo, "aaaa")] == ["nothing to do"]
    assert state(repo) == before


def test_several_land_one_after_the_other(repo: Repo) -> None:
    """In the order in which they are given; what cannot land is left."""
    for name in ("aaaa", "bbbb", "cccc"):
        branch(repo, name, {name: name, **({"file.txt": f"one\n{name}\n"} if name != "cccc" else {})})
    landed = land(repo, "bbbb", "aaaa", "cccc")
    assert [(one.id, one.outcome, one.way) for one in landed] == [
        ("bbbb", "landed", "fast-forward"),
        ("aaaa", "left", None),
        ("cccc", "landed", "merge"),
    ]
    assert landed[1].conflicts == ("file.txt",)
    assert is_clean(repo, str(landed[2].after))
    error = merging.problem(landed)
    assert error is not None
    said = "1 of 3 did not land: ralph/aaaa: conflicts with main in file.txt"
    assert (error.message, error.exit_code) == (said, 6)


@pytest.mark.parametrize("version", [(2, 39), (2, 30)])
def test_the_best_order_has_fewest_conflicts(repo: Repo, version: tuple[int, ...]) -> None:
    """One that is in the way of all others comes after them, also where git merges in a worktree alone."""
    branch(repo, "aaaa", {"x": "aaaa\n", "y": "aaaa\n"})
    branch(repo, "bbbb", {"x": "bbbb\n"})
    branch(repo, "cccc", {"y": "cccc\n"})
    branch(repo, "dddd", {"file.txt": "dddd\n"})
    repo.write("file.txt", "mine\n")
    repo.commit("mine")
    found_project = project.find_project(repo.path, os.environ)
    assert found_project.repository is not None
    found_project = found_project._replace(repository=found_project.repository._replace(git_version=version))
    known = branches.read(found_project)
    target = merging.target_of(found_project, None, None)
    landed = merging.land(found_project, known, target, best_order=True)
    assert [(one.id, one.outcome, one.conflicts) for one in landed] == [
        ("bbbb", "landed", ()),
        ("cccc", "landed", ()),
        ("aaaa", "left", ("x", "y")),
        ("dddd", "left", ("file.txt",)),
    ]


def test_saved_work_is_named_and_stays(repo: Repo) -> None:
    """It does not land."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "aaaa-wip", {"wip": "wip\n"}, base="ralph/aaaa")
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, landed.saved) == ("landed", "ralph/aaaa-wip")
    assert not (repo.path / "wip").exists()


def test_a_target_that_is_not_checked_out_moves(repo: Repo) -> None:
    """And the main checkout does not."""
    repo.git("branch", "release")
    tip = branch(repo, "aaaa", AAAA)
    before = listing(repo.path / "one"), repo.head
    (landed,) = land(repo, "aaaa", into="release")
    assert (landed.target, repo.git("rev-parse", "release")) == ("release", tip)
    assert (listing(repo.path / "one"), repo.head) == before
    assert left(repo) == []


def test_a_merge_into_another_branch_says_so(repo: Repo) -> None:
    """As git does."""
    repo.git("branch", "release")
    branch(repo, "aaaa", AAAA)
    land(repo, "aaaa", into="release", method=MergeMethod.NO_FF)
    assert repo.git("log", "-1", "--format=%s", "release") == "Merge branch 'ralph/aaaa' into release"


def test_a_linked_worktree_moves_with_its_branch(repo: Repo, tmp_path: Path) -> None:
    """Wherever the target is checked out."""
    linked = Repo(tmp_path / "linked tree")
    repo.git("worktree", "add", "-q", "-b", "release", linked.path)
    tip = branch(repo, "aaaa", AAAA)
    land(repo, "aaaa", into="release")
    assert (linked.head, linked.git("status", "--porcelain")) == (tip, "")
    assert (linked.path / "new" / "a").read_text() == "A\n"
    assert linked.git("reflog", "-1", "--format=%gs") == "ralph-wrap merge ralph/aaaa: fast-forward"


def test_two_checkouts_of_the_target_move_both(repo: Repo, tmp_path: Path) -> None:
    """Git allows that if it is forced to."""
    linked = Repo(tmp_path / "linked")
    tip = branch(repo, "aaaa", AAAA)
    repo.git("worktree", "add", "-q", "--force", linked.path, "main")
    land(repo, "aaaa")
    assert is_clean(repo, tip)
    assert linked.git("status", "--porcelain") == ""


@pytest.mark.parametrize("index", ["--no-sparse-index", "--sparse-index"])
def test_a_sparse_checkout_stays_sparse(repo: Repo, index: str) -> None:
    """What it leaves out is left out afterwards as well."""
    repo.git("sparse-checkout", "set", "--cone", index, "one")
    tip = branch(repo, "aaaa", {"one/new": "in\n", "file.txt": "one\nA\n"})
    other = repo.git("commit-tree", "-p", tip, "-m", "out", _tree_with(repo, tip, "out/side", "out\n"))
    repo.git("update-ref", "refs/heads/ralph/aaaa", other)
    land(repo, "aaaa")
    assert is_clean(repo, other)
    assert ((repo.path / "one" / "new").exists(), (repo.path / "out").exists()) == (True, False)


def _tree_with(repo: Repo, commit: str, path: str, content: str) -> str:
    """Return a tree with one more file."""
    index = {**os.environ, "GIT_INDEX_FILE": os.fspath(repo.path / ".git" / "scratch")}
    blob = subprocess.run(
        ("git", "hash-object", "-w", "--stdin"), cwd=repo.path, input=content.encode(), stdout=-1, check=True
    ).stdout.decode()
    for words in (
        ("read-tree", commit),
        ("update-index", "--add", "--cacheinfo", f"100644,{blob.strip()},{path}"),
    ):
        subprocess.run(
            ("git", "-c", "core.sparseCheckout=false", *words), cwd=repo.path, env=index, check=True
        )
    made = subprocess.run(("git", "write-tree"), cwd=repo.path, env=index, stdout=-1, check=True)
    (repo.path / ".git" / "scratch").unlink()
    return made.stdout.decode().strip()


@pytest.mark.parametrize(
    "kind", ["--split-index", "--untracked-cache", "--index-version=4", "--force-write-index"]
)
def test_an_index_of_any_kind_moves(repo: Repo, kind: str) -> None:
    """Whatever git keeps in it besides."""
    tip = branch(repo, "aaaa", AAAA | {"gone": None})
    repo.git("update-index", kind)
    repo.write("mine", "mine\n")
    repo.git("status")
    assert land(repo, "aaaa")[0].outcome == "landed"
    assert (repo.head, repo.git("status", "--porcelain", "--", ":!.ralph")) == (tip, "?? mine")
    assert repo.git("fsck") == ""


def test_a_repository_beside_its_checkout_moves_it(tmp_path: Path) -> None:
    """Git then names the repository where it should name the checkout."""
    repo = Repo(tmp_path / "project")
    subprocess.run(
        ("git", "init", "-q", "-b", "main", "--separate-git-dir", tmp_path / "repository", repo.path),
        check=True,
    )
    repo.write("file.txt", "one\n")
    repo.commit("first")
    tip = branch(repo, "aaaa", AAAA)
    assert land(repo, "aaaa")[0].outcome == "landed"
    assert is_clean(repo, tip)


def test_a_checkout_is_not_undone_while_git_is_at_it(repo: Repo, tmp_path: Path) -> None:
    """It outlives a merge that was killed, and the next one waits for its end."""
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    held = f"[ $PWD = {repo.path} ] && mkdir {mark} && until [ -e {gate} ]; do sleep 0.02; done; cat"
    repo.write(".gitattributes", "new/b filter=slow\n")
    repo.commit("attributes")
    tip = branch(repo, "aaaa", {"new/a": "a\n", "new/b": "b\n", "new/c": "c\n"})
    repo.git("config", "--global", "filter.slow.smudge", held)
    argv = (PROGRAM, "merge", "aaaa")
    with subprocess.Popen(argv, cwd=repo.path) as first:
        eventually(mark.exists, "a checkout that is half done")
        first.kill()
    with subprocess.Popen(argv, cwd=repo.path, stderr=subprocess.PIPE) as second:
        never(lambda: second.poll() is not None, "an end before that of git")
        gate.touch()
        _, printed = second.communicate(timeout=CAP)
    assert (second.returncode, b"was killed before it landed, and is undone" in printed) == (0, True), printed
    assert is_clean(repo, tip)
    assert left(repo) == []


def test_every_kind_of_change_comes_to_the_checkout(repo: Repo) -> None:
    """Executable files, symlinks, a directory instead of a file and the reverse, names in any script."""
    repo.git("switch", "-q", "-c", "ralph/aaaa")
    change_every_kind(repo)
    tip = repo.commit("kinds")
    wanted = files_of(repo.path)
    repo.git("switch", "-q", "main")
    land(repo, "aaaa")
    assert files_of(repo.path) == wanted
    assert is_clean(repo, tip)


@pytest.mark.parametrize("name", ["größe/日本語", "-x", "a'b", "$(id)"])
def test_a_branch_of_any_name_lands_by_it(repo: Repo, name: str) -> None:
    """It bears no id, and has no record."""
    tip = branch(repo, name, AAAA)
    (landed,) = land(repo, f"ralph/{name}", method=MergeMethod.NO_FF)
    assert (landed.id, landed.branch, landed.outcome) == (None, f"ralph/{name}", "landed")
    assert repo.git("log", "-1", "--format=%s%n%P", "main").endswith(tip)
    assert repo.git("log", "-1", "--format=%s", "main") == f"Merge branch 'ralph/{name}'"


def test_an_octopus_in_the_branch_lands(repo: Repo) -> None:
    """A merge commit is a commit like any other."""
    for name in ("aaaa", "bbbb", "cccc"):
        branch(repo, name, {name: name})
    repo.git("switch", "-q", "ralph/aaaa")
    repo.git("merge", "-q", "ralph/bbbb", "ralph/cccc")
    repo.git("switch", "-q", "main")
    repo.write("mine", "mine\n")
    repo.commit("mine")
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, landed.commits) == ("landed", 4)


def test_a_submodule_moves_to_another_commit(repo: Repo) -> None:
    """The link does; its repository is not touched."""
    inner = make_repo(repo.path / "inner")
    repo.git("add", "inner")
    repo.git("commit", "-q", "-m", "a submodule")
    old = inner.head
    new = inner.git("commit-tree", "-p", old, "-m", "next", f"{old}^{{tree}}")
    repo.git("update-index", "--cacheinfo", f"160000,{new},inner")
    tip = repo.git("commit-tree", "-p", "HEAD", "-m", "moved", repo.git("write-tree"))
    repo.git("reset", "-q")
    repo.git("branch", "ralph/aaaa", tip)
    (landed,) = land(repo, "aaaa")
    assert landed.outcome == "landed"
    assert (repo.git("rev-parse", "main:inner"), inner.head) == (new, old)


def test_hooks_do_not_run(repo: Repo) -> None:
    """None of those that a merge would run by hand."""
    ran = repo.path / ".git" / "ran"
    names = (
        "pre-merge-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-merge",
        "post-commit",
        "pre-commit",
    )
    for name in (*names, "reference-transaction", "post-checkout", "post-index-change"):
        repo.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >>{ran}\n", executable=True)
    branch(repo, "aaaa", AAAA)
    ran.unlink()  # negative control: they run for everybody else
    assert land(repo, "aaaa", method=MergeMethod.NO_FF)[0].outcome == "landed"
    assert not ran.exists()


def test_commits_are_signed_if_the_user_signs(repo: Repo, script: Callable[[str], str]) -> None:
    """Git's own configuration counts; what cannot be signed does not land."""
    branch(repo, "aaaa", AAAA)
    before = state(repo)
    repo.git("config", "--global", "commit.gpgSign", "true")
    repo.git("config", "--global", "gpg.program", script("exit 1"))
    (landed,) = land(repo, "aaaa", method=MergeMethod.NO_FF)
    assert (landed.outcome, "gpg failed to sign" in str(landed.reason)) == ("left", True)
    assert state(repo) == before
    repo.git(
        "config",
        "--global",
        "gpg.program",
        script('cat >/dev/null; echo "[GNUPG:] SIG_CREATED " >&2; echo SIG'),
    )
    land(repo, "aaaa", method=MergeMethod.NO_FF)
    assert b"gpgsig SIG" in repo.show("main")


@pytest.mark.parametrize("method", [*MergeMethod])
def test_what_cannot_be_signed_names_the_setting_and_a_way(
    repo: Repo, script: Callable[[str], str], method: MergeMethod
) -> None:
    """The hints can be typed: one fails as the merge did, the other one lands the work unsigned."""
    branch(repo, "aaaa", AAAA)
    repo.write("other", "main has moved\n")
    repo.commit("other")
    repo.git("config", "--global", "commit.gpgSign", "true")
    repo.git("config", "--global", "gpg.program", script("exit 1"))
    (result,) = land(repo, "aaaa", method=method)
    assert str(result.reason).startswith("commit.gpgSign is on, and git cannot sign the new commit: ")
    to_see, to_land = (line.partition(": ")[2] for line in lines_of(result.hint or ""))
    seen = subprocess.run(("sh", "-c", to_see), cwd=repo.path, check=False, capture_output=True)
    assert (seen.returncode != 0, b"gpg failed to sign" in seen.stderr) == (True, True)
    subprocess.run(("sh", "-c", to_land), cwd=repo.path, check=True, capture_output=True)
    assert repo.git("diff", "--name-only", "main", "ralph/aaaa") == "other"


def test_another_failure_does_not_blame_the_signature(repo: Repo, script: Callable[[str], str]) -> None:
    """Git signs here, and cannot merge for another reason."""
    branch(repo, "aaaa", AAAA)
    repo.write("other", "main has moved\n")
    repo.commit("other")
    repo.git("config", "--global", "commit.gpgSign", "true")
    signs = script('cat >/dev/null; echo "[GNUPG:] SIG_CREATED " >&2; echo SIG')
    repo.git("config", "--global", "gpg.program", signs)
    repo.git("config", "--global", "merge.verifySignatures", "true")
    (result,) = land(repo, "aaaa")
    assert (result.outcome, "gpgSign" in str(result.reason)) == ("left", False)
