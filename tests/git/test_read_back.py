"""Every new object of some commits and tags is read back, and each kind of damage is found."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.object_reader import store_of
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.safe.common_dir import SafeCommonDirs
from tests.git.repositories import git_in
from tests.support.damage import DAMAGES, damage_loose, damaged, loose_path, objects_of, pack, store
from tests.support.repo import Repo


class History(NamedTuple):
    """A base, two commits on it, and a tag that names a tag that names the last one."""

    repo: Repo
    base: str
    middle: str
    tip: str
    tag: str

    def oid(self, name: str) -> str:
        """Return the id that a name has in this repository."""
        return self.repo.git("rev-parse", name)

    def damage(self) -> str | None:
        """Return what is damaged of all that is newer than the base."""
        return find_damage(git_in(self.repo.path), [self.tag, self.tip], [self.base])


def _write_history(repo: Repo) -> History:
    repo.write("deep/er/still/file", "one\n" * 20)
    base = repo.commit()
    repo.write("deep/er/still/file", "two\n" * 20)
    repo.write("only-here.txt", "three\n" * 20)
    middle = repo.commit()
    (repo.path / "only-here.txt").unlink()
    repo.write("last.txt", "four\n" * 20)
    tip = repo.commit()
    repo.git("tag", "-a", "-m", "inner", "inner")
    repo.git("tag", "-a", "-m", "outer", "outer", "inner")
    return History(repo, base, middle, tip, repo.git("rev-parse", "outer"))


@pytest.fixture
def history(repo: Repo) -> History:
    """Return a history whose objects are loose."""
    return _write_history(repo)


def test_objects_are_read_with_a_copy_of_the_common_directory(history: History, tmp_path: Path) -> None:
    """Its file ``shallow`` is a link to that of the repository, which most repositories lack."""
    environ = git_environment({**os.environ, "XDG_STATE_HOME": os.fspath(tmp_path / "state")})
    common_dir = history.repo.path / ".git"
    safe = SafeCommonDirs(environ, common_dir, checkout=history.repo.path)
    git = Git(history.repo.path, environ, git_dir=common_dir, safe=safe)
    assert find_damage(git, [history.tip], [history.base]) is None
    assert store_of(git).objects == common_dir / "objects"  # what a message names


OBJECTS = {
    "blob at the tip": "HEAD:last.txt",
    "blob in the middle": "HEAD~1:only-here.txt",
    "blob deep in the tree": "HEAD:deep/er/still/file",
    "tree at the tip": "HEAD^{tree}",
    "tree in the middle": "HEAD~1^{tree}",
    "tree deep in the tree": "HEAD:deep/er/still",
    "commit at the tip": "HEAD",
    "commit in the middle": "HEAD~1",
    "tag at the tip": "outer",
    "tag in the middle": "inner",
}


def _named(found: str | None, oid: str, how: str) -> bool:
    verb = "missing" if how == "missing" else "damaged"
    return (
        found is not None
        and re.search(rf"(object|blob|tree|commit|tag) {oid}\b.* is {verb}", found) is not None
    )


@pytest.mark.parametrize("name", OBJECTS.values(), ids=OBJECTS.keys())
def test_each_damage_of_a_loose_object_is_found(history: History, name: str) -> None:
    """The object is named; when it is whole again, nothing is found."""
    oid = history.oid(name)
    found = {}
    for how in DAMAGES:
        with damaged(history.repo, oid, how):
            found[how] = history.damage()
    assert [how for how in DAMAGES if not _named(found[how], oid, how)] == [], found
    assert history.damage() is None


@pytest.mark.parametrize("name", OBJECTS.values(), ids=OBJECTS.keys())
def test_each_damage_of_a_packed_object_is_found(history: History, name: str) -> None:
    """Also if the checksums of the pack and of its index are right."""
    oid, objects = history.oid(name), objects_of(history.repo)
    found = {}
    for how in DAMAGES:
        pack(history.repo, objects, oid, how)
        found[how] = history.damage()
    assert [how for how in DAMAGES if not _named(found[how], oid, how)] == [], found
    pack(history.repo, objects)
    assert history.damage() is None


@pytest.mark.parametrize("name", ["HEAD:last.txt", "HEAD~1^{tree}", "HEAD", "outer"])
def test_each_damage_is_found_in_a_repository_of_sha256(tmp_path: Path, name: str) -> None:
    """Its ids have 64 digits."""
    repo = Repo(tmp_path / "long")
    repo.path.mkdir()
    repo.git("init", "--quiet", "--object-format=sha256")
    history = _write_history(repo)
    oid = history.oid(name)
    found = {}
    for how in DAMAGES:
        with damaged(history.repo, oid, how):
            found[how] = history.damage()
    assert [how for how in DAMAGES if not _named(found[how], oid, how)] == [], found
    assert history.damage() is None


# What an object names


def _entry(mode: str, name: str, oid: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(oid)


def _commit(tree: str, *parents: str) -> bytes:
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    return "\n".join(
        [*lines, *(f"{who} A <a@b> 1 +0000" for who in ("author", "committer")), "", "x"]
    ).encode()


def _tag(oid: str, kind: str) -> bytes:
    return f"object {oid}\ntype {kind}\ntag x\ntagger A <a@b> 1 +0000\n\nx\n".encode()


def test_an_object_of_another_type_than_its_user_says_is_damage(history: History) -> None:
    """Each of them is whole in itself."""
    repo, git = history.repo, git_in(history.repo.path)
    blob, tree = history.oid("HEAD:last.txt"), history.oid("HEAD^{tree}")
    tips = {
        f"tree {blob} (directory in commit TIP) is a blob": (
            "commit",
            _commit(store(repo, "tree", _entry("40000", "directory", blob))),
        ),
        f"blob {tree} (file in commit TIP) is a tree": (
            "commit",
            _commit(store(repo, "tree", _entry("100644", "file", tree))),
        ),
        f"tree {blob} (the top directory of commit TIP) is a blob": ("commit", _commit(blob)),
        f"commit {tree} (a parent of commit TIP) is a tree": ("commit", _commit(tree, tree)),
        f"commit {tree} (which tag TIP names) is a tree": ("tag", _tag(tree, "commit")),
        f"object {blob} is a blob": ("blob", b"four\n" * 20),
    }
    for words, (kind, content) in tips.items():
        tip = store(repo, kind, content)
        assert find_damage(git, [tip]) == words.replace("TIP", tip)


@pytest.mark.parametrize(
    ("kind", "content"),
    [("tree", b"100644 file\0short"), ("commit", b"parent x\n\n"), ("commit", b"tree x\n\n"), ("tag", b"x")],
)
def test_a_malformed_object_is_damage(history: History, kind: str, content: bytes) -> None:
    """Although it has the hash that its id says."""
    oid = store(history.repo, kind, content)
    tip = store(history.repo, "commit", _commit(oid)) if kind == "tree" else oid
    assert f"{oid}" in (find_damage(git_in(history.repo.path), [tip]) or "")


def test_a_tag_may_name_a_directory_or_a_file(history: History) -> None:
    """What is below is read, too."""
    repo, git = history.repo, git_in(history.repo.path)
    blob = history.oid("HEAD:deep/er/still/file")
    tags = [
        store(repo, "tag", _tag(history.oid("HEAD^{tree}"), "tree")),
        store(repo, "tag", _tag(blob, "blob")),
    ]
    assert find_damage(git, tags) is None
    damage_loose(repo, blob, "empty")
    assert [blob in (find_damage(git, [tag]) or "") for tag in tags] == [True, True]


def test_directories_may_be_as_deep_as_git_allows(repo: Repo) -> None:
    """No recursion of Python ends the walk."""
    blob = store(repo, "blob", b"deep\n")
    tree = store(repo, "tree", _entry("100644", "file", blob))
    for _ in range(1500):
        tree = store(repo, "tree", _entry("40000", "d", tree))
    tip = store(repo, "commit", _commit(tree))
    assert find_damage(git_in(repo.path), [tip]) is None
    damage_loose(repo, blob, "missing")
    assert blob in (find_damage(git_in(repo.path), [tip]) or "")


# What counts as present


def test_what_present_commits_hold_is_not_read(history: History) -> None:
    """Neither their files, nor the commits before them."""
    repo = history.repo
    damage_loose(repo, history.oid(f"{history.base}:file.txt"), "empty")
    damage_loose(repo, history.oid(f"{history.base}~1"), "missing")
    assert history.damage() is None
    assert find_damage(git_in(repo.path), [history.tip]) is not None


def test_commits_behind_a_later_present_commit_are_not_read(history: History) -> None:
    """The present branch has gone on since the tip began."""
    repo = history.repo
    repo.git("checkout", "-q", "-b", "other", history.base)
    for number in range(5):
        repo.write("other.txt", f"{number}\n")
        repo.commit()
    damage_loose(repo, history.oid(f"{history.base}:file.txt"), "empty")
    assert find_damage(git_in(repo.path), [history.tip], [repo.head]) is None
    damage_loose(repo, history.base, "missing")
    assert find_damage(git_in(repo.path), [history.tip], [repo.head]) is not None


@pytest.mark.parametrize("how", ["missing", "empty", "flipped byte", "other content"])
def test_a_present_commit_that_cannot_be_read_is_not_present(history: History, how: str) -> None:
    """The new commits are built on it."""
    damage_loose(history.repo, history.base, how)
    assert _named(history.damage(), history.base, how)


def test_a_damaged_tree_of_a_present_commit_makes_nothing_present(history: History) -> None:
    """All files of the new commit are read."""
    repo = history.repo
    damage_loose(repo, history.oid(f"{history.base}^{{tree}}"), "other content")
    assert history.damage() is None
    blob = history.oid("HEAD:file.txt")
    damage_loose(repo, blob, "flipped byte")
    assert _named(history.damage(), blob, "flipped byte")


def test_a_forged_commit_makes_nothing_present(history: History) -> None:
    """A damaged commit among the present ones names a new one as its parent."""
    repo = history.repo
    present = store(repo, "commit", _commit(history.oid("HEAD^{tree}"), history.base))
    forged = store(repo, "commit", _commit(history.oid("HEAD^{tree}"), history.tip))
    loose_path(repo, present).unlink()
    loose_path(repo, forged).rename(loose_path(repo, present))
    blob = history.oid("HEAD:last.txt")
    damage_loose(repo, blob, "missing")
    assert _named(find_damage(git_in(repo.path), [history.tip], [present]), blob, "missing")


def test_a_wrong_clock_never_makes_less_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The present commit says that it is older than all that it reaches, so that counts as new."""
    repo = history.repo
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1000000000 +0000")
    present = repo.git("commit-tree", "-p", history.tip, "-m", "late", history.oid("HEAD^{tree}"))
    assert find_damage(git_in(repo.path), [history.tip], [present]) is None
    blob = history.oid("HEAD:last.txt")
    damage_loose(repo, blob, "missing")
    assert _named(find_damage(git_in(repo.path), [history.tip], [present]), blob, "missing")


def test_a_merge_is_compared_with_each_parent(history: History) -> None:
    """What comes from a present parent is not read, what is new is."""
    repo = history.repo
    repo.git("checkout", "-q", "-b", "side", history.base)
    repo.write("side.txt", "side\n")
    side = repo.commit()
    repo.git("merge", "-q", "--no-edit", history.tip)
    damage_loose(repo, repo.git("rev-parse", f"{side}:side.txt"), "missing")
    assert find_damage(git_in(repo.path), [repo.head], [side]) is None
    damage_loose(repo, history.oid("main:last.txt"), "missing")
    assert find_damage(git_in(repo.path), [repo.head], [side]) is not None


# Repositories in which objects are missing for a reason


def test_a_shallow_clone_is_whole(history: History, tmp_path: Path) -> None:
    """Its last commits have parents that it lacks; the file ``shallow`` names these commits."""
    clone = Repo(tmp_path / "shallow")
    history.repo.git("clone", "-q", "--depth=2", f"file://{history.repo.path}", clone.path)
    assert find_damage(git_in(clone.path), [history.tip]) is None
    (clone.path / ".git/shallow").unlink()
    assert f"commit {history.base} (a parent of commit {history.middle}) is missing" == find_damage(
        git_in(clone.path), [history.tip]
    )


def test_a_copy_of_the_common_directory_says_where_the_history_ends(history: History, tmp_path: Path) -> None:
    """Its file ``shallow`` is a link."""
    clone = Repo(tmp_path / "shallow")
    history.repo.git("clone", "-q", "--depth=2", f"file://{history.repo.path}", clone.path)
    common_dir = clone.path / ".git"
    safe = SafeCommonDirs(os.environ, common_dir, checkout=clone.path)
    git = git_in(clone.path)._replace(git_dir=common_dir, safe=safe)
    assert find_damage(git, [history.tip]) is None
    (common_dir / "shallow").unlink()
    assert history.base in (find_damage(git, [history.tip]) or "")


@pytest.fixture(params=["blob:none", "tree:0"])
def partial(request: pytest.FixtureRequest, history: History, tmp_path: Path) -> Repo:
    """Return a partial clone without a checkout."""
    history.repo.git("config", "uploadpack.allowFilter", "true")
    history.repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    clone = Repo(tmp_path / "partial")
    source = f"file://{history.repo.path}"
    history.repo.git("clone", "-q", "-n", f"--filter={request.param}", source, clone.path)
    return clone


def test_promised_objects_are_no_damage(partial: Repo, history: History) -> None:
    """The remote of a partial clone has them; without such a remote they are missing."""
    assert find_damage(git_in(partial.path), [history.tip]) is None
    partial.git("config", "--unset", "extensions.partialClone", check=False)
    partial.git("config", "--unset", "remote.origin.promisor")
    assert "is missing" in (find_damage(git_in(partial.path), [history.tip]) or "")


def test_a_promised_object_may_be_used_anew(partial: Repo, history: History) -> None:
    """Under another name, in a directory that the remote does not know."""
    blob, git = history.oid("HEAD:last.txt"), git_in(partial.path)
    partial.git("cat-file", "-e", f"{history.tip}^{{tree}}")  # git fetches it
    tree = store(partial, "tree", _entry("100644", "renamed", blob))
    tip = store(partial, "commit", _commit(tree, history.tip))
    assert find_damage(git, [tip], [history.tip]) is None
    loose_path(partial, tree).unlink()
    assert _named(find_damage(git, [tip], [history.tip]), tree, "missing")


def test_nothing_is_fetched_from_the_remote(partial: Repo, history: History) -> None:
    """Neither before nor after does the clone have the file."""
    before = objects_in(partial)
    find_damage(git_in(partial.path), [history.tip])
    assert objects_in(partial) == before


def objects_in(repo: Repo) -> list[Path]:
    """Return the files with objects."""
    return sorted(path for path in (repo.path / ".git/objects").rglob("*") if path.is_file())


def test_borrowed_objects_are_read(history: History, tmp_path: Path) -> None:
    """Also their damage."""
    clone = Repo(tmp_path / "shared")
    history.repo.git("clone", "-q", "--shared", history.repo.path, clone.path)
    assert find_damage(git_in(clone.path), [history.tip]) is None
    blob = history.oid("HEAD:last.txt")
    damage_loose(history.repo, blob, "truncated")
    assert _named(find_damage(git_in(clone.path), [history.tip]), blob, "truncated")


def test_symlinks_programs_and_submodules_are_whole(repo: Repo) -> None:
    """The commit of a submodule is in another repository."""
    (repo.path / "link").symlink_to("nowhere")
    repo.write("tool", "#!/bin/sh\n", executable=True)
    repo.write("empty", "")
    repo.git("add", "--all")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    repo.git("commit", "-qm", "all kinds")
    assert find_damage(git_in(repo.path), [repo.head]) is None


def test_a_thousand_commits_are_read(repo: Repo) -> None:
    """And the damage of one in the middle is found."""
    rows = "".join(
        f"commit refs/heads/long\ncommitter A <a@b> {2 * 10**9 + number} +0000\ndata 1\nx\n"
        f"M 644 inline f{number % 10}\ndata {len(str(number))}\n{number}\n"
        for number in range(1000)
    )
    repo.git("config", "fastimport.unpackLimit", "100000")
    stream = f"reset refs/heads/long\nfrom refs/heads/main\n{rows}".encode()
    subprocess.run(("git", "fast-import", "--quiet"), cwd=repo.path, input=stream, check=True)
    git, tip = git_in(repo.path), repo.git("rev-parse", "long")
    assert find_damage(git, [tip], [repo.head]) is None
    middle = repo.git("rev-parse", "long~500")
    damage_loose(repo, middle, "other content")
    assert _named(find_damage(git, [tip], [repo.head]), middle, "other content")


def test_a_large_file_is_not_held_in_memory(repo: Repo) -> None:
    """It is hashed as it comes."""
    repo.write("large", b"\0" * (48 << 20))
    tip = repo.commit()
    tracemalloc.start()
    try:
        assert find_damage(git_in(repo.path), [tip]) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# Names and words


def test_tips_may_be_names_of_refs(history: History) -> None:
    """One that does not exist is damage, one that points to nothing, too."""
    repo, git = history.repo, git_in(history.repo.path)
    assert find_damage(git, ["refs/heads/main", "refs/tags/outer"]) is None
    assert find_damage(git, ["refs/heads/gone"]) == "the ref refs/heads/gone does not exist"
    loose_path(repo, history.tip).unlink()
    words = f"object {history.tip} (the tip of refs/heads/main) is missing"
    assert find_damage(git, ["refs/heads/main"]) == words
    assert find_damage(git, []) is None


def test_the_words_of_git_are_passed_on(history: History) -> None:
    """With the path of the file, in one line."""
    blob = history.oid("HEAD:last.txt")
    damage_loose(history.repo, blob, "empty")
    found = history.damage() or ""
    assert found.startswith(f"blob {blob} (last.txt in commit {history.tip}) is damaged; git says: error: ")
    assert "\n" not in found


@pytest.mark.parametrize("where", ["--global", "--local"])
def test_what_git_says_of_the_configuration_is_no_damage(history: History, where: str) -> None:
    """Newer git warns at each start of a key that older git knew."""
    history.repo.git("config", where, "core.fsyncObjectFiles", "true")
    assert history.damage() is None


def test_what_git_traces_is_no_damage(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user looks for something else."""
    for name in ("GIT_TRACE", "GIT_TRACE2", "GIT_TRACE_SETUP", "GIT_TRACE_PACK_ACCESS"):
        monkeypatch.setenv(name, "1")
    assert history.damage() is None


def _replace_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cat_file: str) -> None:
    """Put a script before git on the PATH, with other commands for ``cat-file``."""
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    real = Repo(tmp_path).git("--exec-path") + "/git"
    script.write_text(
        f'#!/bin/bash\nreal={real}\ncase " $* " in *" cat-file "*) {cat_file};; esac\nexec $real "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")


def test_what_a_wrapper_says_before_git_starts_is_no_damage(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example the loader: ``LD_PRELOAD cannot be preloaded``."""
    _replace_git(tmp_path, monkeypatch, "echo a word >&2")
    assert history.damage() is None
    damage_loose(history.repo, history.oid("HEAD:last.txt"), "missing")
    assert history.damage() is not None


def test_a_git_that_is_killed_each_time_is_damage(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its exit status."""
    _replace_git(tmp_path, monkeypatch, "read -r; echo missing; read -r; kill -KILL $$")
    assert "is damaged; git says: cat-file ended with exit status -9" in (history.damage() or "")


def test_a_git_that_is_killed_once_is_started_again(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one reads the same object."""
    once = tmp_path / "once"
    kill = f"[ -e {once} ] || {{ read -r; echo missing; read -r; touch {once}; kill -KILL $$; }}"
    _replace_git(tmp_path, monkeypatch, kill)
    assert history.damage() is None
    assert once.exists()
