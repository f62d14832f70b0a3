"""``ralph-wrap apply``: saved work in a checkout, all of it or nothing, and no file overwritten."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import branches
from ralph_wrap.commands import apply as applying
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError
from ralph_wrap.state import project
from ralph_wrap.system.log import lines_of
from tests.support.git_shim import shim_git
from tests.support.histories import grow
from tests.support.merging import branch, change_every_kind, files_of, left, project_with_files, replaced
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, command, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from ralph_wrap.commands.apply import AppliedChanges

WORK = {"file.txt": "one\nsaved\n", "new/a": "new\n", "gone": None}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a repository with a branch of one commit, and saved work on top of it."""
    made = project_with_files(tmp_path / "project")
    branch(made, "aaaa", {"committed": "yes\n"})
    branch(made, "aaaa-wip", WORK, base="ralph/aaaa")
    return made


def apply(repo: Repo, name: str = "aaaa", top: Path | None = None, **env: str) -> AppliedChanges:
    """Put saved work into a checkout, as the command line does."""
    environ = {**os.environ, **env}
    found_project = project.find_project(repo.path, environ)
    one = branches.named(branches.read(found_project), name)
    return applying.apply(found_project, one, top=top or found_project.root)


def state(repo: Repo) -> dict[str, object]:
    """Return what may change, and what must not."""
    return {
        "files": files_of(repo.path),
        "index": repo.git("ls-files", "--stage"),
        "refs": repo.git("for-each-ref"),
        "left": left(repo),
    }


def status(repo: Repo) -> str:
    """Return what git says has changed."""
    return repo.git("status", "--porcelain", "--untracked-files=all", "--", ":!.ralph")


def test_saved_work_comes_to_the_disk_and_nothing_is_staged(repo: Repo) -> None:
    """What was committed does not come: that is for ``merge``."""
    before = state(repo)
    wip = "ralph/aaaa-wip"
    there = os.fspath(repo.path)
    assert apply(repo) == applying.AppliedChanges("aaaa", wip, there, ("file.txt", "gone", "new/a"), (), ())
    assert status(repo) == " M file.txt\n D gone\n?? new/a"
    assert ((repo.path / "file.txt").read_text(), (repo.path / "new/a").read_text()) == (
        "one\nsaved\n",
        "new\n",
    )
    assert {**state(repo), "files": None} == {**before, "files": None}


def test_a_second_time_there_is_nothing_to_do(repo: Repo) -> None:
    """A file that is as it should be does not stop it."""
    apply(repo)
    before = state(repo)
    applied = apply(repo)
    assert (applied.files, applied.there) == ((), ("file.txt", "gone", "new/a"))
    assert state(repo) == before


def test_what_a_killed_apply_has_left_is_gone_on_with(repo: Repo) -> None:
    """Some files are as they should be, the others as they were."""
    repo.write("file.txt", "one\nsaved\n")
    applied = apply(repo)
    assert (applied.files, applied.there) == (("gone", "new/a"), ("file.txt",))
    assert status(repo) == " M file.txt\n D gone\n?? new/a"


def test_it_fits_where_others_have_gone_on(repo: Repo) -> None:
    """Both are brought together in a file that both have changed, as far as they do not meet."""
    rows = [f"{number}\n" for number in range(20)]
    branch(repo, "bbbb", {"long": "".join(rows)})
    branch(repo, "bbbb-wip", {"long": "".join([*rows[:-1], "saved\n"])}, base="ralph/bbbb")
    repo.write("long", "".join(["mine\n", *rows[1:]]))
    repo.commit("mine")
    assert apply(repo, "bbbb").files == ("long",)
    lines = (repo.path / "long").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("mine", "saved")


def test_other_work_in_the_checkout_stays_as_it_is(repo: Repo) -> None:
    """Changed, staged, untracked: as long as it is somewhere else."""
    repo.write("run.sh", "staged\n")
    repo.git("add", "run.sh")
    repo.write("run.sh", "staged, and changed\n")
    repo.write("mine", "mine\n")
    repo.write("new/mine", "mine\n")
    index = repo.git("ls-files", "--stage")
    apply(repo)
    assert status(repo) == " M file.txt\n D gone\nMM run.sh\n?? mine\n?? new/a\n?? new/mine"
    assert repo.git("ls-files", "--stage") == index


IN_THE_WAY = {
    "changed": ("echo mine >>file.txt", "file.txt"),
    "staged": ("echo mine >>file.txt; git add file.txt", "file.txt"),
    "deleted": ("rm file.txt", "file.txt"),
    "executable": ("chmod +x file.txt", "file.txt"),
    "hidden": ("git update-index --assume-unchanged file.txt; echo mine >>file.txt", "file.txt"),
    "untracked": ("mkdir new; echo mine >new/a", "new/a"),
    "ignored": ("mkdir new; echo '*' >new/.gitignore; echo mine >new/a", "new/a"),
    "a file above": ("echo mine >new", "new"),
    "a link above": ("mkdir x; ln -s x new", "new"),
    "a directory": ("mkdir -p new/a; echo mine >new/a/mine", "new/a/mine"),
    "changed where it is to go": ("echo mine >>gone", "gone"),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_nothing_is_overwritten(repo: Repo, kind: str) -> None:
    """One file in the way, and none changes; it is named."""
    body, named = IN_THE_WAY[kind]
    subprocess.run(("sh", "-c", body), cwd=repo.path, check=True)
    before = state(repo)
    with pytest.raises(ConflictError, match=f"would be overwritten: {named}$"):
        apply(repo)
    assert state(repo) == before


@pytest.mark.parametrize(
    "kind", ["untracked", "ignored", "a file above", "a directory", "changed where it is to go"]
)
def test_what_is_in_the_way_can_be_put_aside(repo: Repo, kind: str) -> None:
    """By the printed command; then the saved work comes, and the stash has what was there."""
    subprocess.run(("sh", "-c", IN_THE_WAY[kind][0]), cwd=repo.path, check=True)
    with pytest.raises(ConflictError) as caught:
        apply(repo)
    [way] = [line for line in lines_of(caught.value.hint) if line.startswith("to put them aside: ")]
    subprocess.run(("sh", "-c", way.partition(": ")[2]), cwd=repo.path, check=True)
    assert apply(repo).files
    assert "mine" in repo.git("stash", "show", "-p", "--include-untracked")


def test_what_conflicts_with_commits_is_named(repo: Repo) -> None:
    """And nothing changes, not even what would fit."""
    repo.write("file.txt", "one\nmine\n")
    repo.commit("mine")
    before = state(repo)
    with pytest.raises(ConflictError, match=r"conflicts with what is checked out in .*: file.txt$"):
        apply(repo)
    assert state(repo) == before


def test_a_checkout_with_conflicts_is_refused(repo: Repo) -> None:
    """Apply could not find its own changes in such an index."""
    branch(repo, "bbbb", {"run.sh": "theirs\n"})
    repo.write("run.sh", "mine\n")
    repo.commit("mine")
    repo.git("merge", "-q", "ralph/bbbb", check=False)
    before = state(repo)
    with pytest.raises(ConflictError, match=r"has conflicts: run.sh"):
        apply(repo)
    assert state(repo) == before


def test_a_linked_worktree_takes_it(repo: Repo, tmp_path: Path) -> None:
    """And the main checkout stays as it is."""
    linked = Repo(tmp_path / "linked")
    repo.git("worktree", "add", "-q", "-b", "other", linked.path)
    before = state(repo)
    apply(repo, top=linked.path)
    assert linked.git("status", "--porcelain", "--untracked-files=all") == " M file.txt\n D gone\n?? new/a"
    assert state(repo) == before | {"left": ["linked"]}


def test_a_checkout_of_another_repository_is_refused(repo: Repo, tmp_path: Path) -> None:
    """Whatever its files are called."""
    other = make_repo(tmp_path / "other")
    with pytest.raises(ConflictError, match="belongs to another repository"):
        apply(repo, top=other.path)


def test_a_sparse_checkout_gets_what_it_leaves_out(repo: Repo) -> None:
    """Work is not lost because it is outside of the sparse checkout."""
    repo.git("sparse-checkout", "set", "--cone", "none")
    branch(repo, "aaaa-wip", {"one/two/three": "saved\n", "out/new": "new\n"})
    apply(repo)
    assert (repo.path / "one" / "two" / "three").read_text() == "saved\n"
    assert (repo.path / "out" / "new").read_text() == "new\n"


def test_every_kind_of_change_comes(repo: Repo) -> None:
    """Executable files, symlinks, a directory instead of a file and the reverse, names in any script."""
    repo.git("switch", "-q", "-c", "ralph/bbbb")
    repo.git("switch", "-q", "-c", "ralph/bbbb-wip")
    change_every_kind(repo)
    wanted = files_of(repo.path)
    repo.commit("kinds")
    repo.git("switch", "-q", "main")
    apply(repo, "bbbb")
    assert files_of(repo.path) == wanted


def test_what_a_real_session_has_saved_comes(repo: Repo) -> None:
    """With an index that differs from the files, which makes a merge commit of it."""
    work = "echo a >a; git add a; git commit -qm a; echo b >b; git add b; echo c >b; echo d >>file.txt"
    assert run(repo.path, "-n", "1", "--", "sh", "-c", work).report["saved"]
    repo.git("checkout", "-q", "--", ".")
    (name,) = [
        name.removesuffix("-wip") for name in repo.branches() if name.endswith("-wip") and "aaaa" not in name
    ]
    assert apply(repo, name).files == ("b", "file.txt")
    assert ((repo.path / "b").read_text(), (repo.path / "a").exists()) == ("c\n", False)


def test_commits_that_only_saved_work_holds_come_with_it(repo: Repo) -> None:
    """The agent has left its branch, so no branch has them."""
    branch(repo, "bbbb", {"b": "b\n"})
    branch(repo, "bbbb-wip", {"c": "c\n"}, base="ralph/bbbb")
    branch(repo, "bbbb-wip", {"d": "d\n"})
    assert apply(repo, "bbbb").files == ("c", "d")


def test_saved_work_alone_is_applied(repo: Repo) -> None:
    """Its branch was deleted."""
    repo.git("branch", "-q", "-D", "ralph/aaaa")
    assert apply(repo).files == ("file.txt", "gone", "new/a")


def test_a_submodule_is_left_and_named(repo: Repo) -> None:
    """Its commits are in a repository of its own."""
    blob = repo.git("rev-parse", "ralph/aaaa-wip")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{blob},inner")
    tip = repo.git("commit-tree", "-p", "main", "-m", "wip", repo.git("write-tree"))
    repo.git("reset", "-q")
    repo.git("branch", "ralph/bbbb-wip", tip)
    applied = apply(repo, "bbbb")
    assert (applied.files, applied.submodules) == ((), ("inner",))


def test_nothing_saved_is_not_found(repo: Repo) -> None:
    """Said by name."""
    branch(repo, "bbbb", {"b": "b\n"})
    with pytest.raises(NotFoundError, match="ralph/bbbb has no saved work"):
        apply(repo, "bbbb")


def test_it_needs_no_identity(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit is internal: no user sees it."""
    repo.git("config", "--global", "user.useConfigOnly", "true")
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    assert apply(repo).files


def test_what_git_could_not_write_goes_back(repo: Repo, tmp_path: Path) -> None:
    """All of it or nothing, also where the disk is full in the middle."""
    before = state(repo)
    half = "rm gone; mkdir new; printf n >new/a; printf 'one\\ns' >file.txt"
    cases = f"""*" read-tree -m -u "*) (cd {repo.path} && {half}); exit 128 ;;"""
    with pytest.raises(RalphError):
        apply(repo, PATH=shim_git(tmp_path / "bin", cases))
    assert state(repo) == before


def test_a_file_that_changes_meanwhile_is_not_overwritten(repo: Repo, tmp_path: Path) -> None:
    """Git looks once more when it writes."""
    cases = f"""*" read-tree -m -u "*) echo mine >{repo.path}/file.txt ;;"""
    with pytest.raises(RalphError):
        apply(repo, PATH=shim_git(tmp_path / "bin", cases))
    assert ((repo.path / "file.txt").read_text(), status(repo)) == ("mine\n", " M file.txt")


def test_what_was_there_stays_where_git_refuses(repo: Repo) -> None:
    """The user has written the very same file; it is theirs, and does not go back with the rest."""
    repo.write("new/a", "new\n")
    repo.write("file.txt", "staged\n")
    repo.git("add", "file.txt")
    repo.write("file.txt", "one\n")
    before = state(repo)
    with pytest.raises(RalphError):
        apply(repo)
    assert state(repo) == before


@pytest.mark.parametrize("mode", ["100644", "120000"])
def test_a_submodule_is_not_replaced_with_all_that_it_holds(repo: Repo, mode: str) -> None:
    """Git deletes it, changes, untracked files, repository and all."""
    inner = make_repo(repo.path / "inner")
    repo.git("add", "inner")
    repo.git("commit", "-q", "-m", "a submodule")
    repo.git("branch", "-f", "ralph/aaaa")
    repo.git("branch", "-D", "ralph/aaaa-wip")
    replaced(repo, "inner", {"inner": (mode, "one")}, "ralph/aaaa-wip")
    inner.write("mine", "mine\n")
    before = state(repo)
    with pytest.raises(ConflictError, match="would be overwritten: inner"):
        apply(repo)
    assert state(repo) == before


def answered(cwd: Path, *arguments: str) -> tuple[int, Any]:
    """Run ``ralph-wrap apply --json``; return its status and the envelope."""
    ended = command("apply", *arguments, "--json", cwd=cwd)
    return ended.status, json.loads(ended.stdout)


def test_the_json_answer(repo: Repo) -> None:
    """From a directory of the project, to its main checkout."""
    ended, printed = answered(repo.path / "one", "aaaa")
    assert (ended, printed["success"], printed["tool"]) == (0, True, "apply")
    assert printed["data"] == {
        "id": "aaaa",
        "branch": "ralph/aaaa-wip",
        "checkout": os.fspath(repo.path),
        "files": ["file.txt", "gone", "new/a"],
        "there": [],
        "submodules": [],
        "title": "",
    }


def test_another_checkout_is_named_by_a_directory_in_it(repo: Repo, tmp_path: Path) -> None:
    """From wherever: the project is found by it."""
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "-q", "-b", "other", linked)
    ended, printed = answered(tmp_path, "aaaa", "-C", os.fspath(linked / "one"))
    assert (ended, printed["data"]["checkout"]) == (0, os.fspath(linked))
    ended, printed = answered(repo.path, "ffff")
    assert (ended, printed["error"]["code"]) == (4, "not_found")


def test_a_person_reads_what_the_files_are(repo: Repo) -> None:
    """Names alone do not say it; a program gets only the names."""
    grow(repo, "ralph/a3f2-wip", grow(repo, "ralph/a3f2", "main", {"a": "a\n"}), {"new": "new\n"})
    with Terminal(PROGRAM, "apply", "a3f2", cwd=repo.path, size=(24, 200)) as terminal:
        assert terminal.finish() == 0
    assert terminal.words == (
        f"new\nralph-wrap: these files of ralph/a3f2-wip are in {repo.path} now, and not staged\n"
    )


def test_the_hint_of_a_conflict_lands_no_saved_work(tmp_path: Path) -> None:
    """The saved work begins at a commit that is not merged; its two commands bring both where they belong."""
    made = make_repo(tmp_path / "project")
    branch(made, "aaaa", {"file.txt": "one\ncommitted\n"})
    branch(made, "aaaa-wip", {"file.txt": "one\ncommitted\nsaved\n", ".env": "TOKEN=1\n"}, base="ralph/aaaa")
    with pytest.raises(ConflictError) as caught:
        apply(made)
    hints = caught.value.hint.split("\n")
    commands = [line.rpartition(": ")[2] for line in hints[:2]]
    assert commands == ["ralph-wrap merge aaaa", "ralph-wrap apply aaaa"]
    assert "git merge" not in caught.value.hint
    for line in commands:
        ended = command(*line.split()[1:], cwd=made.path)
        assert ended.status == 0, ended.stderr
    assert made.show("HEAD:file.txt") == b"one\ncommitted\n"
    assert made.git("ls-files", ".env") == ""
    assert (made.path / ".env").read_text() == "TOKEN=1\n"


@pytest.mark.parametrize("committed", ["*.log\n", None], ids=["committed", "untracked"])
def test_our_own_line_is_in_nobodys_way(tmp_path: Path, committed: str | None) -> None:
    """A session has added it, and nobody has committed it; it stays, also when the same is applied again."""
    made = project_with_files(tmp_path / "project")
    if committed is not None:
        made.write(".gitignore", committed)
        made.commit("rules")
    branch(made, "aaaa", {"committed": "yes\n"})
    branch(made, "aaaa-wip", {".gitignore": "*.log\n*.tmp\n"}, base="ralph/aaaa")
    made.write(".gitignore", f"{committed or ''}.ralph/worktrees/\n")
    assert apply(made).files == (".gitignore",)
    assert (made.path / ".gitignore").read_text() == "*.log\n*.tmp\n.ralph/worktrees/\n"
    again = apply(made)
    assert (again.files, again.there) == ((), (".gitignore",))
    assert (made.path / ".gitignore").read_text() == "*.log\n*.tmp\n.ralph/worktrees/\n"


@pytest.mark.parametrize("rules", ["*.log\n.ralph/worktrees/\nmine\n", "mine\n.ralph/worktrees/\n"])
def test_a_line_of_the_user_beside_ours_is_in_the_way(tmp_path: Path, rules: str) -> None:
    """Negative control: what the user has written is never overwritten."""
    made = project_with_files(tmp_path / "project")
    made.write(".gitignore", "*.log\n")
    made.commit("rules")
    branch(made, "aaaa", {"committed": "yes\n"})
    branch(made, "aaaa-wip", {".gitignore": "*.log\n*.tmp\n"}, base="ralph/aaaa")
    made.write(".gitignore", rules)
    with pytest.raises(ConflictError, match=r"would be overwritten: \.gitignore"):
        apply(made)
    assert (made.path / ".gitignore").read_text() == rules


def test_the_main_checkout_is_named_to_a_user_in_another_one(repo: Repo, tmp_path: Path) -> None:
    """Without an option apply changes the main one; the hint has the command for the one here."""
    grow(repo, "ralph/a3f2-wip", "main", {"new": "saved\n"})
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "-q", "--detach", linked)
    applied = command("apply", "a3f2", cwd=linked)
    assert applied.status == 0, applied.stderr
    assert ((repo.path / "new").exists(), (linked / "new").exists()) == (True, False)
    [note] = [event for event in applied.narration if event["event"] == "apply.elsewhere"]
    line = note["hint"].partition(": ")[2]
    assert line == f"ralph-wrap apply a3f2 -C {linked}"
    assert command(*line.split()[1:], cwd=linked).status == 0
    assert (linked / "new").read_text() == "saved\n"


def test_a_symlink_over_a_directory_is_left_out(repo: Repo) -> None:
    """An agent links node_modules to that of the project; the rest of its work is applied."""
    repo.write(".gitignore", ".ralph/worktrees/\nnode_modules/\n")
    repo.commit("ignore")
    kept = repo.write("node_modules/dep/index.js", "dep\n")
    agent = 'ln -s "$RALPH_PROJECT/node_modules" node_modules; echo work >> file.txt'
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    applied = command("apply", ended.report["id"], cwd=repo.path)
    assert (applied.status, applied.stdout) == (0, b"file.txt\n"), applied.stderr
    [note] = [event for event in applied.narration if event["event"] == "link.left"]
    assert "the symlink node_modules is left out" in note["message"]
    assert (repo.path / "file.txt").read_text().endswith("work\n")
    assert kept.read_text() == "dep\n"
    assert repo.git("show", f"ralph/{ended.report['id']}-wip:node_modules").endswith("/node_modules")
