"""What the program believes of git's exit statuses and output: each belief holds on each git that is tested.

``docs/development/git.md`` says where the program relies on what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repo import Repo, make_repo

EXPECTED_GIT = os.environ.get("EXPECTED_GIT", "")
"""The version that must run here, for example ``2.47.3``."""

MISSING = "1" * 40
ZERO = "0" * 40
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
ALL = None
"""Any output."""

_SAFE = ("-c", "advice.addEmbeddedRepo=false", "-c", "add.ignoreErrors=true")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository: main has two commits, side conflicts with main, same has main's change."""
    repo = make_repo(tmp_path_factory.mktemp("beliefs") / "project", empty=True)
    repo.git("config", "user.name", "A. Tester")
    repo.git("config", "user.email", "tester@example.invalid")
    repo.write("f", "1\n")
    repo.write("d/g", "2\n")
    repo.commit("one")
    repo.write("f", "1\n3\n")
    repo.commit("two")
    for branch, content in (("side", "other\n"), ("same", "1\n3\n")):
        repo.git("checkout", "-q", "-b", branch, "main~1")
        repo.write("f", content)
        repo.commit(branch)
    repo.git("checkout", "-q", "main")
    return repo.path


class World:
    """The repository of a test, and the names that stand for its objects."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        names = {"one": "main~1", "two": "main", "side": "side", "same": "same", "tree": "main^{tree}"}
        names |= {"f": "main:f", "f_one": "main~1:f", "f_side": "side:f", "g": "main:d/g"}
        self.ids = {name: repo.git("rev-parse", revision) for name, revision in names.items()}
        self.ids |= {"missing": MISSING, "zero": ZERO, "top": str(repo.path), "empty_tree": EMPTY_TREE}

    def run(self, words: str | tuple[str, ...], stdin: str = "", cwd: Path | None = None) -> tuple[int, str]:
        """Run git, and return its exit status and output."""
        arguments = words.split() if isinstance(words, str) else words
        ended = subprocess.run(
            ["git", "--no-pager", *_SAFE, *(word.format_map(self.ids) for word in arguments)],
            cwd=cwd or self.repo.path,
            input=stdin.format_map(self.ids).encode(),
            capture_output=True,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
        return ended.returncode, ended.stdout.decode()

    def expected(self, output: str) -> str:
        """Return output with the ids of this repository."""
        return output.format_map(self.ids)


@pytest.fixture
def world(made: Path, tmp_path: Path) -> World:
    """Return a copy of the repository."""
    return World(Repo(Path(shutil.copytree(made, tmp_path / "project", symlinks=True))))


@pytest.mark.skipif(not EXPECTED_GIT, reason="EXPECTED_GIT names no version")
def test_this_is_the_git_that_is_meant(world: World) -> None:
    """Whatever a test starts as git is the git of that version."""
    assert world.run("version") == (0, f"git version {EXPECTED_GIT}\n")


READS: dict[str, tuple[str | tuple[str, ...], str, int, str | None]] = {
    # rev-parse: 1 without a word for what is not there
    "a revision that names nothing": ("rev-parse --quiet --verify nothing^{{commit}}", "", 1, ""),
    "an id without an object": ("rev-parse --quiet --verify {missing}^{{commit}}", "", 1, ""),
    "an id of a blob is no commit": ("rev-parse --quiet --verify {f}^{{commit}}", "", 1, ""),
    "a commit found by its message": ("rev-parse --quiet --verify :/one", "", 0, "{one}\n"),
    "several questions at once": (
        "rev-parse HEAD^{{commit}} HEAD^{{tree}} --symbolic-full-name HEAD --",
        "",
        0,
        "{two}\n{tree}\nrefs/heads/main\n--\n",
    ),
    "a commit and its parents": ("rev-parse HEAD HEAD^@", "", 0, "{two}\n{one}\n"),
    "an unknown option is printed as it is": (
        "rev-parse --show-toplevel --separator --git-common-dir --separator --show-prefix --separator HEAD",
        "",
        0,
        "{top}\n--separator\n.git\n--separator\n\n--separator\n{two}\n",
    ),
    # refs
    "HEAD on a branch": ("symbolic-ref --quiet HEAD", "", 0, "refs/heads/main\n"),
    "a ref that is not symbolic": ("symbolic-ref --quiet refs/heads/main", "", 1, ""),
    "a symbolic ref that is not there": ("symbolic-ref --quiet refs/heads/none", "", 1, ""),
    "a name that is no name of a ref": ("check-ref-format refs/heads/a..b", "", 1, ""),
    "a name of a ref": ("check-ref-format refs/heads/a/b", "", 0, ""),
    "a ref with a reflog": ("reflog exists refs/heads/main", "", 0, ""),
    "a ref without a reflog": ("reflog exists refs/heads/none", "", 1, ""),
    "a reflog, the newest first": ("reflog --format=%H refs/heads/main --", "", 0, "{two}\n{one}\n"),
    "a reflog of no ref": ("reflog --format=%H refs/heads/none --", "", 128, ""),
    # history
    "an ancestor": ("merge-base --is-ancestor {one} {two}", "", 0, ""),
    "no ancestor": ("merge-base --is-ancestor {two} {one}", "", 1, ""),
    "no ancestor is not what git says of a missing commit": (
        "merge-base --is-ancestor {missing} {two}",
        "",
        128,
        "",
    ),
    "nor of a missing descendant": ("merge-base --is-ancestor {one} {missing}", "", 128, ""),
    "the best common ancestor": ("merge-base {side} {two}", "", 0, "{one}\n"),
    "of more than two": ("merge-base --all --octopus {side} {two} {same}", "", 0, "{one}\n"),
    "commits since a base": ("rev-list --count refs/heads/main ^{one} --", "", 0, "1\n"),
    "since a base that is missing": ("rev-list --count refs/heads/main ^{missing} --", "", 128, ""),
    "of a ref that is not there": ("rev-list --count refs/heads/none ^{one} --", "", 128, ""),
    "a missing tip on standard input": ("rev-list --stdin", "{missing}\n", 128, ""),
    "--not after --stdin does not negate what was read": (
        "rev-list --stdin --not refs/heads/side",
        "{two}\n",
        0,
        "{two}\n",
    ),
    "an excluded ref keeps nothing": (
        "rev-list --parents --stdin --not --exclude=refs/heads/main --glob=refs/heads/",
        "{two}\n",
        0,
        "{two} {one}\n",
    ),
    "commits that only one branch has": (
        "rev-list --format=%s {two} --not --exclude=main --branches --tags --remotes",
        "",
        0,
        "commit {two}\ntwo\n",
    ),
    "a history with its boundary": (
        "rev-list --parents --boundary --topo-order --reverse --stdin",
        "{two}\n^{one}\n",
        0,
        "-{one}\n{two} {one}\n",
    ),
    "the commits that are not on the other side": (
        "rev-list --reverse --topo-order --right-only --cherry-pick --no-merges {two}...{same} --",
        "",
        0,
        "",
    ),
    # objects
    "types of objects, and of a missing one": (
        ("cat-file", "--batch-check=%(objectname) %(objecttype)"),
        "{two}\n{tree}\n{f}\n{missing}\n",
        0,
        "{two} commit\n{tree} tree\n{f} blob\n{missing} missing\n",
    ),
    "contents of objects, and of a missing one": (
        "cat-file --batch",
        "{g}\n{missing}\n{g}\n",
        0,
        "{g} blob 2\n2\n\n{missing} missing\n{g} blob 2\n2\n\n",
    ),
    "contents without a header": ("cat-file --batch=", "{g}\n", 0, "\n2\n\n"),
    "an entry of a tree, and the directory above": (
        "ls-tree -z -t --full-tree {two} -- d/g",
        "",
        0,
        ALL,
    ),
    "the empty tree": ("hash-object -t tree --stdin", "", 0, "{empty_tree}\n"),
    "a tree of what is missing": ("mktree -z", "100644 blob {missing}\tx\0", 128, ""),
    "a commit on what is missing": ("commit-tree {tree} -p {missing} -m x", "", 128, ""),
    "a commit of a tree that is missing": ("commit-tree {missing} -m x", "", 128, ""),
    "a pack from what is missing": ("pack-objects --revs -q --stdout", "{missing}\n", 128, ""),
    # differences
    "the index is HEAD": ("diff-index --cached --quiet HEAD --", "", 0, ""),
    "a missing commit is no difference": ("diff-index --cached --quiet {missing} --", "", 128, ""),
    "an id begins each difference": (
        "diff-tree --stdin --always -r -z --numstat -M",
        "{two} {one}\n{one} {one}\n",
        0,
        "{two}\x001\t0\tf\0{one}\0",
    ),
    "a missing commit leaves its place out": (
        "diff-tree --stdin --always -r -z --numstat -M",
        "{missing} {one}\n{one} {one}\n",
        0,
        "{one}\0",
    ),
    "a root commit alone": (
        "diff-tree --stdin --always -r -z -c --raw --root --no-renames",
        "{one}\n",
        0,
        "{one}\0:000000 100644 {zero} {g} A\0d/g\0:000000 100644 {zero} {f_one} A\0f\0",
    ),
    "differences as raw entries": (
        "diff-tree -r -z --no-renames --raw --no-abbrev {one} {two}",
        "",
        0,
        ":100644 100644 {f_one} {f} M\0f\0",
    ),
    "fields of commits": (
        ("log", "--no-walk=unsorted", "--stdin", "--no-show-signature", "-z", "--format=%H %T %P%n%s"),
        "{two}\n",
        0,
        "{two} {tree} {one}\ntwo\0",
    ),
    # index and files
    "nothing to ignore": ("check-ignore -q --no-index x", "", 1, ""),
    "a path outside": ("check-ignore -q --no-index /etc/x", "", 128, ""),
    "the index with its flags": (
        "ls-files -v -s -z",
        "",
        0,
        "H 100644 {g} 0\td/g\0H 100644 {f} 0\tf\0",
    ),
    "nothing to refresh": ("update-index -q --refresh", "", 0, ""),
    # configuration
    "a key that is not set": ("config --get -- no.such", "", 1, ""),
    "no key that matches": ("config -z --get-regexp ^no[.]such", "", 1, ""),
    "a file that is not there": ("config --file /none --get core.bare", "", 1, ""),
    "a file that is no configuration": ("config --file - --get core.bare", "broken[", 128, ""),
    "a key without a value has no newline": (
        "config --file - --no-includes --list -z",
        "[a]\nb\nc = 1\n",
        0,
        "a.b\0a.c\n1\0",
    ),
    # remotes
    "a remote that is not there": ("remote get-url --push --all -- none", "", 2, ""),
    "an address where nothing is": ("ls-remote --refs --quiet -- /none", "", 128, ""),
    "an option that git does not have": ("worktree list --no-such-option", "", 129, ""),
}


@pytest.mark.parametrize("belief", READS)
def test_git_answers(world: World, belief: str) -> None:
    """Each question has the status and the output that the program relies on."""
    words, stdin, status, output = READS[belief]
    answer = world.run(words, stdin)
    assert answer == (status, answer[1] if output is ALL else world.expected(output))


TRANSACTIONS = {
    "a ref that exists is not created": (
        ("create refs/heads/t", "{one}", "create refs/heads/main", "{one}"),
        128,
    ),
    "a ref below another one is not created": (
        ("create refs/heads/t", "{one}", "create refs/heads/main/x", "{one}"),
        128,
    ),
    "nothing missing is created": (("create refs/heads/t", "{one}", "create refs/heads/u", "{missing}"), 128),
    "a ref with another value is not moved": (
        ("create refs/heads/t", "{one}", "update refs/heads/main", "{side}", "{one}"),
        128,
    ),
    "nor deleted": (("create refs/heads/t", "{one}", "delete refs/heads/main", "{one}"), 128),
    "nor verified": (("create refs/heads/t", "{one}", "verify refs/heads/main", "{one}"), 128),
}


@pytest.mark.parametrize("belief", TRANSACTIONS)
def test_a_transaction_changes_all_or_nothing(world: World, belief: str) -> None:
    """If one change of a transaction cannot be made, none is."""
    fields, status = TRANSACTIONS[belief]
    before = world.run("for-each-ref")
    stdin = "".join(f"{field}\0" for field in fields)
    assert world.run("update-ref --no-deref -m reason -z --stdin", stdin) == (status, "")
    assert world.run("for-each-ref") == before


def test_a_transaction_without_deref_changes_the_symbolic_ref_itself(world: World) -> None:
    """Its target stays; ``option no-deref`` holds for the next change alone."""
    world.run("symbolic-ref refs/heads/link refs/heads/main")
    rows = "option no-deref\0update refs/heads/link\0{one}\0{two}\0"
    rows += "option no-deref\0verify refs/heads/main\0{two}\0"
    assert world.run("update-ref --create-reflog -m reason -z --stdin", rows) == (0, "")
    assert world.run("rev-parse refs/heads/link refs/heads/main") == (0, world.expected("{one}\n{two}\n"))


SINGLE_REFS = {
    "a new ref must not exist": ("update-ref --no-deref -m x refs/heads/main {one} {zero}", 128),
    "nor be below another one": ("update-ref --no-deref -m x refs/heads/main/x {one} {zero}", 128),
    "nor name what is missing": ("update-ref --no-deref -m x refs/heads/new {missing} {zero}", 128),
    "nor name a blob as a branch": ("update-ref --no-deref -m x refs/heads/new {f} {zero}", 128),
    "a ref with another value is not moved": ("update-ref -m x refs/heads/main {one} {one}", 128),
    "nor deleted": ("update-ref -d --no-deref refs/heads/main {one}", 1),
    "a ref that is gone is not deleted": ("update-ref -d --no-deref refs/heads/none {one}", 1),
}


@pytest.mark.parametrize("belief", SINGLE_REFS)
def test_a_change_of_a_ref_fails_if_the_ref_is_not_as_expected(world: World, belief: str) -> None:
    """Git refuses it by its exit status, and changes nothing."""
    words, status = SINGLE_REFS[belief]
    before = world.run("for-each-ref")
    assert world.run(words)[0] == status
    assert world.run("for-each-ref") == before


DAMAGES = ("missing", "empty", "truncated", "overwritten")
ASKED_OF_DAMAGED: dict[str, tuple[str | tuple[str, ...], str, str | None]] = {
    "its type": (("cat-file", "--batch-check=%(objectname) %(objecttype)"), "{two}\n", "{two} missing\n"),
    "its content": ("cat-file --batch", "{two}\n{g}\n", "{two} missing\n{g} blob 2\n2\n\n"),
    "whether it names a commit": ("rev-parse --quiet --verify {two}^{{commit}}", "", ""),
    "its tree": ("rev-parse --verify {two}^{{tree}}", "", ALL),
    "how many commits it has": ("rev-list --count refs/heads/main ^{one} --", "", ""),
    "its commits": ("rev-list --parents --stdin --not --glob=refs/tags", "{two}\n", ""),
    "whether it contains another one": ("merge-base --is-ancestor {one} {two}", "", ""),
    "what is staged": ("diff-index --cached --quiet HEAD --", "", ""),
    "what has changed": ("status --porcelain=v2 -z --branch --untracked-files=all", "", ""),
    "its files": ("ls-tree -z -t --full-tree {two} -- d/g", "", ""),
    "a commit on it": ("commit-tree {tree} -p {two} -m x", "", ""),
    "a branch at it": ("update-ref --no-deref -m x refs/heads/new {two} {zero}", "", ""),
    "a branch at it, in a transaction": ("update-ref -m x -z --stdin", "create refs/heads/new\0{two}\0", ""),
    "a pack of it": ("pack-objects --revs -q --stdout", "{two}\n", ""),
}


def damage(world: World, name: str, how: str) -> None:
    """Damage the loose file of an object."""
    oid = world.ids[name]
    path = world.repo.path / ".git" / "objects" / oid[:2] / oid[2:]
    content = path.read_bytes()
    path.unlink()
    contents = {"empty": b"", "truncated": content[:10], "overwritten": b"x" * len(content)}
    if how in contents:
        path.write_bytes(contents[how])


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("asked", ASKED_OF_DAMAGED)
def test_a_damaged_commit_never_looks_sound(world: World, asked: str, how: str) -> None:
    """Git fails, or lists the commit as missing; which status it fails with differs between versions."""
    words, stdin, output = ASKED_OF_DAMAGED[asked]
    damage(world, "two", how)
    status, printed = world.run(words, stdin)
    assert output is ALL or printed == world.expected(output)
    assert (status != 0) != ("cat-file" in words)


def test_a_file_that_cannot_be_merged_stays(world: World) -> None:
    """A two-tree merge fails, and changes nothing, if a file that it would change is changed."""
    world.repo.write("f", "mine\n")
    assert world.run("read-tree -m -u {two} {one}") == (128, "")
    assert (world.repo.path / "f").read_text() == "mine\n"
    assert world.run("diff-index --cached --quiet HEAD --") == (0, "")


CONFLICTS = {
    "merge --quiet --no-edit --no-ff -m m {side}": "",
    "merge --quiet --no-commit --no-ff {side}": "",
    "merge --quiet --ff --squash {side}": "",
    "cherry-pick --allow-empty --stdin": "{side}\n",
    "cherry-pick --no-commit --allow-empty {side}": "",
}


@pytest.mark.parametrize("words", CONFLICTS)
def test_a_conflict_has_status_1_and_unmerged_entries(world: World, words: str) -> None:
    """The program takes the paths from the index, and never from the text."""
    assert world.run(words, CONFLICTS[words])[0] == 1
    assert world.run("ls-files --unmerged -z") == (
        0,
        world.expected("100644 {f_one} 1\tf\x00100644 {f} 2\tf\x00100644 {f_side} 3\tf\0"),
    )
    assert world.run("rev-parse HEAD") == (0, world.expected("{two}\n"))


def test_a_merge_over_a_changed_file_fails_without_a_conflict(world: World) -> None:
    """2 or, before git 2.34, 128; the file and HEAD stay, and no entry is unmerged."""
    world.repo.write("f", "mine\n")
    assert world.run("merge --quiet --no-edit --no-ff -m m {side}")[0] in {2, 128}
    assert world.run("ls-files --unmerged -z") == (0, "")
    assert (world.repo.path / "f").read_text() == "mine\n"
    assert world.run("rev-parse HEAD") == (0, world.expected("{two}\n"))


def test_a_change_that_is_there_already_is_skipped(world: World) -> None:
    """The cherry-pick stops with 1, nothing is staged, and ``--skip`` goes on."""
    assert world.run("cherry-pick --allow-empty --stdin", "{same}\n")[0] == 1
    assert world.run("rev-parse -q --verify CHERRY_PICK_HEAD") == (0, world.expected("{same}\n"))
    assert world.run("diff-index --cached --quiet HEAD --") == (0, "")
    assert world.run("cherry-pick --skip")[0] == 0
    assert world.run("rev-parse HEAD") == (0, world.expected("{two}\n"))


def test_status_names_each_untracked_file_and_each_ignored_directory(world: World) -> None:
    """A repository below is one path with a slash, whether it has a commit or not."""
    for path in ("new", "dir/new", "out/file", "x"):
        world.repo.write(path, "")
    world.repo.write(".gitignore", "out/\nx\n")
    for name in ("empty", "full"):
        world.run(f"init -q {name}")
    world.run("commit -q --allow-empty -m x", cwd=world.repo.path / "full")
    options = "--branch --no-ahead-behind --untracked-files=all --ignored=matching --ignore-submodules=dirty"
    status, printed = world.run(f"status --porcelain=v2 -z {options}")
    found = {entry for entry in printed.split("\0") if not entry.startswith("# ")}
    assert (status, found) == (
        0,
        {"? .gitignore", "? dir/new", "? empty/", "? full/", "? new", "! out/", "! x", ""},
    )
    assert world.run("check-ignore -q --no-index x") == (0, "")


def test_a_locked_worktree_is_removed_only_by_two_forces(world: World, tmp_path: Path) -> None:
    """One force refuses; a worktree that is gone is an error."""
    path = tmp_path / "tree"
    assert world.run(f"worktree add --no-checkout --lock -b b {path} {{one}}")[0] == 0
    assert world.run(f"worktree remove --force {path}") == (128, "")
    assert world.run(f"worktree remove --force --force {path}") == (0, "")
    assert world.run(f"worktree remove --force --force {path}") == (128, "")
    assert world.run("rev-parse refs/heads/b") == (0, world.expected("{one}\n"))


PUSHES = {
    "to a ref that has another value": (
        "--force-with-lease=refs/heads/main:{one} -- o {side}:refs/heads/main",
        1,
    ),
    "to a ref that must not exist": ("--force-with-lease=refs/heads/main: -- o {side}:refs/heads/main", 1),
    "of nothing to a ref that is gone": ("--force-with-lease=refs/heads/n:{one} -- o :refs/heads/n", 1),
    "that is no fast-forward": ("-- o {side}:refs/heads/main", 1),
}


@pytest.mark.parametrize("push", PUSHES)
def test_a_push_that_is_refused_says_so_for_its_ref(world: World, tmp_path: Path, push: str) -> None:
    """With ``--porcelain`` the line begins with an exclamation mark, and the remote has not changed."""
    options, status = PUSHES[push]
    remote = tmp_path / "remote.git"
    world.run(f"clone -q --bare . {remote}")
    world.run(f"remote add o {remote}")
    before = world.run("ls-remote --refs --quiet -- o")
    ended, printed = world.run(f"push --porcelain --no-verify --atomic {options}")
    assert (ended, [line[:2] for line in printed.splitlines() if line[:1] in "!*+-="]) == (status, ["!\t"])
    assert world.run("ls-remote --refs --quiet -- o") == before


def test_a_fetch_of_a_pattern_that_matches_nothing_is_no_error(world: World, tmp_path: Path) -> None:
    """The fetch of one ref that is not there is one."""
    remote = tmp_path / "remote.git"
    world.run(f"clone -q --bare . {remote}")
    world.run(f"remote add o {remote}")
    fetch = "fetch --no-tags --prune --no-write-fetch-head --no-recurse-submodules -- o"
    assert world.run(f"{fetch} +refs/none/*:refs/x/*") == (0, "")
    assert world.run(f"{fetch} +refs/heads/none:refs/x/none")[0] == 128


def test_a_ref_without_an_object_is_listed(world: World) -> None:
    """Its type cannot be asked for; without a type it is listed as any other one."""
    (world.repo.path / ".git/refs/heads/broken").write_text(f"{MISSING}\n")
    assert world.run(("for-each-ref", "--format=%(objectname)", "refs/heads/broken")) == (0, f"{MISSING}\n")
    assert world.run(("for-each-ref", "--format=%(objecttype)", "refs/heads/broken")) == (128, "")


def test_an_empty_ref_is_left_out(world: World) -> None:
    """Git warns of it, and lists the other ones."""
    (world.repo.path / ".git/refs/heads/broken").touch()
    listed = world.run(("for-each-ref", "--format=%(refname)", "refs/heads/"))
    assert listed == (0, "refs/heads/main\nrefs/heads/same\nrefs/heads/side\n")
