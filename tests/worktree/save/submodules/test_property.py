"""For anything done in submodules: every byte is in a repository that stays, or still in the worktree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.profiles import costly_examples
from tests.support.repo import Repo, make_repo
from tests.support.submodules import NESTED, SUB, Project, inside, make_project
from tests.support.trees import on_disk

_STEPS = {
    "write": "echo $N > file.txt",
    "new": "mkdir -p a; echo new $N > 'a/new\n'$N",
    "remove": "rm -f file.txt",
    "stage": "git add -A",
    "unstaged after staged": "echo staged $N > both; git add both; echo disk $N > both",
    "ignored": "echo $N > $N.ignored",
    "hide": "echo hidden $N > file.txt; git update-index --assume-unchanged file.txt",
    "skip": "echo skipped $N > file.txt; git update-index --skip-worktree file.txt",
    "commit": "git add -A; git commit -qm $N --allow-empty",
    "amend": "git commit -q --amend --allow-empty -m amended-$N",
    "reset": "git reset -q --hard HEAD~1",
    "branch": "git checkout -q -B branch-$N",
    "detach": "git checkout -q -f --detach origin/main",
    "delete branches": "git checkout -q --detach; git branch | grep branch- | xargs -r git branch -q -D",
    "stash": "git stash push -q -u",
    "pop": "git stash pop -q",
    "tag": "git tag -a -m tag-$N tag-$N; git reset -q --hard origin/main",
    "tracking": "git update-ref refs/remotes/origin/other HEAD",
    "merge": "git checkout -q --detach; echo theirs $N > file.txt; git commit -qam theirs;"
    " T=$(git rev-parse HEAD); git checkout -q --detach HEAD~1; echo ours $N > file.txt;"
    " git commit -qam ours; git merge -q $T",
    "orphan": "git checkout -q --orphan orphan-$N",
    "pack": "git pack-refs --all; git repack -q -a -d",
    "no reflog": "git reflog expire --expire=all refs/heads/main",
    "deinit": "cd $TOP; git submodule --quiet deinit -f --all",
    "nested": "cp -r $OTHER nested-$N",
}
_DONE = st.lists(st.tuples(st.sampled_from([SUB, NESTED]), st.sampled_from(sorted(_STEPS))), max_size=6)


@pytest.fixture(scope="module", params=[True, False], ids=["cloned", "bare"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a world that is copied for each example."""
    world = tmp_path_factory.mktemp("model") / "world"
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "A. Tester")
            patch.setenv(f"GIT_{role}_EMAIL", "tester@example.invalid")
        make_project(world, checked_out=request.param)
        make_repo(world / "other").write("file", "of another repository\n")
    return world


def _blobs(sub: Repo) -> set[str]:
    """Return every blob that a submodule's files, index, refs and reflogs lead to."""
    if not (sub.path / ".git").exists():
        return set()
    names = sub.git("ls-files", "-z", "-co", "--exclude-standard").split("\0")
    files = [name for name in names if (sub.path / name).is_file()]
    found = {sub.git("hash-object", "-w", "--", name) for name in files}
    found |= {row.split()[1] for row in sub.git("ls-files", "-s", "-z").split("\0") if row[:3] == "100"}
    listed = sub.git(
        "rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--stdin", check=False
    )
    kinds = [row.split() for row in sub.git("cat-file", "--batch-all-objects", "--batch-check").splitlines()]
    blobs = {row[0] for row in kinds if row[1] in {"blob", "commit"}}
    return found | (blobs & {*listed.split()})


@settings(
    max_examples=costly_examples(),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(done=_DONE)
def test_nothing_done_in_submodules_is_lost(model: Path, done: list[tuple[str, str]]) -> None:
    """The worktree is gone only if all of it is reachable by a ref elsewhere."""
    with tempfile.TemporaryDirectory() as temporary:
        world = Path(temporary, "world")
        shutil.copytree(model, world, symlinks=True)
        project = Project(Repo(world / "project"), Repo(world / "upstream"))
        tree = project.tree()
        for number, (path, step) in enumerate(done):
            sub = inside(tree, path)
            if (sub.path / ".git").exists():
                words = f"N={number} TOP={tree.path} OTHER={world}/other; {_STEPS[step]}"
                sub.git("-c", f"alias.step=!cd {sub.path}; {words}; :", "step", check=False)
        expected = {path: _blobs(inside(tree, path)) for path in (SUB, NESTED)}
        before = on_disk(tree.path)
        outcome = tree.finish()
        if outcome.kept is not None:
            assert on_disk(tree.path) == before
            assert (tree.linked.registration / "modules" / SUB).is_dir()
            # A commit without a submodule was checked out, say, which leaves that one's directory.
            assert any(word in outcome.kept for word in ("nested repository", "its directory is gone"))
            return
        stores = [project.repo, project.store, Repo(project.store.path / "modules" / "deep")]
        there: set[str] = set()
        for store in stores:
            if store.path.exists():
                store.git("reflog", "expire", "--expire=all", "--all")
                store.git("gc", "-q", "--prune=now")
                assert store.git("fsck", "--connectivity-only", "--no-dangling") == ""
                there |= {
                    *store.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
                }
        known = {*Repo(world / "upstream").git("rev-list", "--objects", "--no-object-names", "--all").split()}
        known |= {*Repo(world / "deep").git("rev-list", "--objects", "--no-object-names", "--all").split()}
        assert {path: oids - there - known for path, oids in expected.items()} == {SUB: set(), NESTED: set()}
