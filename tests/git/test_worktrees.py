"""The worktrees of a repository, as git lists them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap import git
from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, WorktreeInfo
from tests.support.git_shim import shim_git
from tests.support.needs import git_since, needs
from tests.support.repo import Repo

OID = "0123456789abcdef0123456789abcdef01234567"

NAMES = [
    *[b"plain", b"with space", b"new\nline", b"two\n\nlines", b"end\n", b" ", b"\xff\xfe", b'"quoted"'],
    *[b"x\nworktree ", b"x\nbranch refs", b"x\nlocked", "\u00fc\u2028".encode()],
]
"""Names of directories that a file system allows."""

REASONS = ["", "a word", '"', '"quoted"', "back\\slash", "two\nlines", "\ta\x07\x0bb", "\udcff", "\u00fc"]

REFUSES_Z = '*" -z "*) "$REAL" worktree list --porcelain --no-such-option 2>/dev/null; exit $? ;;'
"""A git before 2.36."""


def _git(directory: Path) -> Git:
    return Git(directory, git.git_environment(os.environ))


def _main(repo: Repo) -> WorktreeInfo:
    return WorktreeInfo(repo.path, "main", repo.head)


def _add(repo: Repo, name: bytes, branch: str = "topic") -> Path:
    if b"\n" in name:  # without -z, such a path cannot be told from other lines
        git_since(2, 36).check()
    path = repo.path.parent / os.fsdecode(name)
    repo.git("worktree", "add", "-q", "-b", branch, "--", path)
    return path


# The format

_bytes = st.binary().map(lambda value: value.replace(b"\0", b""))
_paths = _bytes.map(lambda value: Path("/", os.fsdecode(value.lstrip(b"/"))))
_reasons = st.none() | _bytes.map(lambda value: os.fsdecode(value.strip()))  # git strips them
_branches = st.none() | st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1)
_infos = st.builds(
    WorktreeInfo,
    path=_paths,
    branch=_branches,
    head=st.none() | st.just(OID),
    locked=_reasons,
    prunable=_reasons,
)


def _quoted(value: bytes) -> bytes:
    """Quote like ``quote_c_style`` of git, which leaves alone what needs no quotes."""
    names = dict(zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True))
    quoted = b"".join(
        b"\\" + bytes((names[byte],))
        if byte in names
        else (b"\\%03o" % byte if byte < 0x20 or byte >= 0x7F else bytes((byte,)))
        for byte in value
    )
    return value if quoted == value else b'"' + quoted + b'"'


def _listing(infos: list[WorktreeInfo], separator: bytes) -> bytes:
    """Print worktrees as git does."""
    lines: list[bytes] = []
    for info in infos:
        lines.append(b"worktree " + os.fsencode(info.path))
        lines.append(b"HEAD " + (info.head or "0" * 40).encode())
        lines.append(b"branch refs/heads/" + info.branch.encode() if info.branch else b"detached")
        for key, reason in ((b"locked", info.locked), (b"prunable", info.prunable)):
            if reason is not None:
                shown = os.fsencode(reason) if separator == b"\0" else _quoted(os.fsencode(reason))
                lines.append(key + b" " + shown if shown else key)
        lines += [b"a-line-of-the-future with a value", b""]
    return b"".join(line + separator for line in lines)


@given(st.lists(_infos))
def test_a_listing_is_read_back(infos: list[WorktreeInfo]) -> None:
    """Whatever bytes paths and reasons hold."""
    assert git.parse_porcelain(_listing(infos, b"\0"), b"\0") == infos


@given(st.lists(_infos.filter(lambda info: b"\n" not in os.fsencode(info.path))))
def test_a_listing_of_older_git_is_read_back(infos: list[WorktreeInfo]) -> None:
    """Whatever bytes the reasons hold; only a newline in a path cannot be recognised."""
    assert git.parse_porcelain(_listing(infos, b"\n"), b"\n") == infos


@given(st.binary(), st.sampled_from([b"\0", b"\n"]))
def test_anything_is_read(output: bytes, separator: bytes) -> None:
    """Bytes that are no listing are no error, and change nothing of the path before them."""
    [first, *_] = git.parse_porcelain(b"worktree /first" + separator + output, separator)
    assert first.path == Path("/first")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["worktree /r", "bare"], WorktreeInfo(Path("/r"))),
        (["worktree /r", f"HEAD {OID}", "detached"], WorktreeInfo(Path("/r"), head=OID)),
        (["worktree /r", f"HEAD {'0' * 64}", "branch refs/heads/m"], WorktreeInfo(Path("/r"), "m")),
        (["worktree /r", f"HEAD {OID}", "branch refs/other/m"], WorktreeInfo(Path("/r"), head=OID)),
        (["worktree ", "bare"], WorktreeInfo(Path("/"))),
        (["worktree /r", "locked", "prunable gone"], WorktreeInfo(Path("/r"), locked="", prunable="gone")),
    ],
    ids=["bare", "detached", "no commit yet", "no branch", "root directory", "locked and prunable"],
)
@pytest.mark.parametrize("separator", [b"\0", b"\n"], ids=["z", "lines"])
def test_each_kind_of_entry(lines: list[str], expected: WorktreeInfo, separator: bytes) -> None:
    """As the manual shows them, and as git's source has them."""
    output = b"".join(line.encode() + separator for line in [*lines, ""])
    assert git.parse_porcelain(output, separator) == [expected]


# Real git


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_directory(repo: Repo, name: bytes) -> None:
    """Each byte of it comes back."""
    path = _add(repo, name)
    assert git.list_worktrees(_git(repo.path)) == [_main(repo), WorktreeInfo(path, "topic", repo.head)]


@needs(git_since(2, 31))  # before, the list says nothing of locks
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("cases", ["", REFUSES_Z], ids=["z", "lines"])
def test_any_reason_of_a_lock(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, cases: str
) -> None:
    """Empty if none was given; with and without -z."""
    path = _add(repo, b"locked")
    repo.git("worktree", "lock", *(["--reason", reason] if reason else []), path)
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", cases))
    [_, locked] = git.list_worktrees(_git(repo.path))
    assert locked == WorktreeInfo(path, "topic", repo.head, locked=reason.strip())


@needs(git_since(2, 31))
def test_a_worktree_that_is_gone(repo: Repo) -> None:
    """Git says why it could be pruned; our calls do not prune it."""
    path = _add(repo, b"gone")
    shutil.rmtree(path)
    [_, gone] = git.list_worktrees(_git(repo.path))
    assert (gone.path, gone.branch, gone.locked) == (path, "topic", None)
    assert gone.prunable == "gitdir file points to non-existent location"


def test_a_detached_head(repo: Repo) -> None:
    """It has a commit and no branch."""
    path = repo.path.parent / "detached"
    repo.git("worktree", "add", "-q", "--detach", path)
    assert git.list_worktrees(_git(path)) == [_main(repo), WorktreeInfo(path, None, repo.head)]


def test_a_bare_repository(repo: Repo) -> None:
    """It is listed by its own directory, and its worktrees like any other."""
    bare = repo.path.parent / "bare.git"
    repo.git("clone", "-q", "--bare", repo.path, bare)
    path = repo.path.parent / "linked"
    repo.git("worktree", "add", "-q", "-b", "topic", path, cwd=bare)
    listed = git.list_worktrees(_git(bare)._replace(git_dir=bare))
    assert listed == [WorktreeInfo(bare), WorktreeInfo(path, "topic", repo.head)]


def test_no_repository(tmp_path: Path) -> None:
    """That is git's error."""
    with pytest.raises(GitError, match="not a git repository"):
        git.list_worktrees(_git(tmp_path))


def test_a_listing_is_tried_again(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git fails while another process adds a worktree."""
    failed = tmp_path / "failed"
    fail_once = f'*" list "*) [ -e {failed} ] || {{ touch {failed}; exit 128; }} ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", fail_once))
    assert git.list_worktrees(_git(repo.path)) == [_main(repo)]
    assert failed.exists()


# Questions to the listing


@pytest.mark.parametrize("name", NAMES)
def test_the_worktree_that_holds_a_branch(repo: Repo, name: bytes) -> None:
    """By the branch's whole name."""
    path = _add(repo, name, "a/topic")
    found = {ref: git.worktree_holding(_git(repo.path), f"refs/heads/{ref}") for ref in ("a/topic", "topic")}
    assert found == {"a/topic": path, "topic": None}


def test_a_detached_head_holds_no_branch_named_none(repo: Repo) -> None:
    """Python's None is no name."""
    repo.git("worktree", "add", "-q", "--detach", repo.path.parent / "detached")
    repo.git("branch", "None")
    assert git.worktree_holding(_git(repo.path), "refs/heads/None") is None


@pytest.mark.parametrize("name", NAMES)
def test_the_registered_worktrees(repo: Repo, name: bytes) -> None:
    """That very path, and no part of it."""
    path = _add(repo, name)
    assert git.is_registered(_git(repo.path), path)
    assert not git.is_registered(_git(repo.path), path.with_name("pla"))
