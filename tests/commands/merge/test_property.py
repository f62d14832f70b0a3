"""For any base, branch, main and files that git does not know: all of it lands, or nothing has moved."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from ralph_wrap import branches
from ralph_wrap.commands import apply as applying
from ralph_wrap.commands import merge
from ralph_wrap.commands.merge import MergeMethod
from ralph_wrap.errors import ConflictError
from ralph_wrap.state import project
from tests.support.merging import is_clean, left
from tests.support.profiles import costly_examples
from tests.support.repo import Repo, make_repo
from tests.support.trees import Listing, in_git, on_disk, put

# Few names and few contents, so that all sides meet often, files and directories too.
_PATHS = st.lists(st.sampled_from([b"a", b"b", b"\xff\n "]), min_size=1, max_size=3).map(b"/".join)
_FILES = st.tuples(st.sampled_from(["100644", "100755"]), st.sampled_from([b"", b"1\n2\n3\n", b"1\n2\nx\n"]))
_LINKS = st.tuples(st.just("120000"), st.sampled_from([b"a", b"../x"]))


def _without_clashes(listing: Listing) -> Listing:
    """Drop every path that would need a file to be a directory."""
    return {
        path: entry
        for path, entry in listing.items()
        if not any(path != other and path.startswith(other + b"/") for other in listing)
    }


_LISTINGS = st.dictionaries(_PATHS, st.one_of(_FILES, _FILES, _LINKS), max_size=5).map(_without_clashes)
_SETTINGS = settings(
    max_examples=costly_examples(),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _with_branches(directory: str, base: Listing, theirs: Listing, ours: Listing) -> Repo:
    """Return a repository with a branch, and main checked out with something else."""
    repo = make_repo(Path(directory, "project"), empty=True)
    repo.write(".git/info/exclude", ".ralph/\n")
    for name, listing in (("main", base), ("ralph/aaaa", theirs), ("ours", ours)):
        if name != "main":
            repo.git("switch", "-q", "-c", name, "main")
        put(repo.path, listing)
        repo.commit(name)
    repo.git("switch", "-q", "main")
    repo.git("reset", "-q", "--hard", "ours")
    return repo


def _add_unknown(repo: Repo, files: Listing) -> None:
    """Put files beside those that git knows, wherever nothing else is in the way."""
    for path, (_, content) in files.items():
        target = repo.path / os.fsdecode(path)
        above = [one for one in target.parents if one.is_relative_to(repo.path) and one != repo.path]
        if os.path.lexists(target) or any(one.is_symlink() or one.is_file() for one in above):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"mine: " + content)


def _files(repo: Repo) -> Listing:
    return {path: entry for path, entry in on_disk(repo.path).items() if not path.startswith(b".ralph/")}


@_SETTINGS
@given(
    base=_LISTINGS,
    theirs=_LISTINGS,
    ours=_LISTINGS,
    unknown=_LISTINGS,
    method=st.sampled_from([*MergeMethod]),
)
def test_it_lands_or_nothing_moves(
    base: Listing, theirs: Listing, ours: Listing, unknown: Listing, method: MergeMethod
) -> None:
    """What git does not know stays; the checkout is what the commit holds, which is what git makes."""
    with tempfile.TemporaryDirectory() as directory:
        repo = _with_branches(directory, base, theirs, ours)
        _add_unknown(repo, unknown)
        before, head = _files(repo), repo.head
        known = in_git(repo, "HEAD")
        mine = {path: entry for path, entry in before.items() if path not in known}
        found_project = project.find_project(repo.path, os.environ)
        wanted = branches.read(found_project)
        target = merge.target_of(found_project, "main", None)
        (landed,) = merge.land(found_project, wanted, target, method=method)
        event(landed.outcome)
        after = _files(repo)
        assert left(repo) == []
        assert repo.git("diff-index", "--cached", "HEAD") == ""
        if landed.outcome != "landed":
            assert (after, repo.head) == (before, head)
            return
        assert is_clean(repo, str(landed.after)) or mine
        assert after == {**in_git(repo, "HEAD"), **mine}
        merged = repo.git("merge-tree", "--write-tree", head, "ralph/aaaa", check=False).split("\n")[0]
        assert method is MergeMethod.REBASE or repo.git("rev-parse", "HEAD^{tree}") == merged


@_SETTINGS
@given(base=_LISTINGS, saved=_LISTINGS, ours=_LISTINGS, unknown=_LISTINGS)
def test_it_is_applied_or_nothing_changes(
    base: Listing, saved: Listing, ours: Listing, unknown: Listing
) -> None:
    """No file of the user's is other than it was, but those that are named; nothing is ever staged."""
    with tempfile.TemporaryDirectory() as directory:
        repo = _with_branches(directory, base, saved, ours)
        repo.git("branch", "-m", "ralph/aaaa", "ralph/aaaa-wip")
        _add_unknown(repo, unknown)
        before, index = _files(repo), repo.git("ls-files", "--stage")
        found_project = project.find_project(repo.path, os.environ)
        (branch,) = branches.read(found_project)
        try:
            applied = applying.apply(found_project, branch, top=repo.path)
        except ConflictError:
            event("refused")
            assert _files(repo) == before
            return
        finally:
            assert (repo.git("ls-files", "--stage"), left(repo)) == (index, [])
        after, known = _files(repo), in_git(repo, "HEAD")
        merged = repo.git("merge-tree", "--write-tree", "HEAD", "ralph/aaaa-wip").split("\n")[0]
        changed = {os.fsencode(path) for path in (*applied.files, *applied.there)}
        mine = {path: entry for path, entry in before.items() if path not in known and path not in changed}
        assert after == {**in_git(repo, merged), **mine}
