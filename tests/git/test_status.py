"""The status of a checkout, read back."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap import git
from ralph_wrap.git.status import Status, parse_status, stage_all, start_status
from tests.git.repositories import git_in
from tests.support.repo import Repo, make_repo

UNMERGED = ["DD", "AU", "UD", "UA", "DU", "AA", "UU"]

KINDS = [*UNMERGED, *(x + y for x in " MTAD" for y in " MTAD" if x + y not in {"  ", "AA", "DD"}), "??", "!!"]
"""What ``git status`` can say without renames (git-status(1), *Short Format*)."""


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 255), min_size=1).map(bytes))))
def test_status_is_read_back(entries: list[tuple[str, bytes]]) -> None:
    """Whatever bytes the paths hold, each is in the lists that it belongs to, in order."""
    found = parse_status(b"".join(kind.encode() + b" " + path + b"\0" for kind, path in entries))
    expected = Status(
        changed=tuple(os.fsdecode(path) for kind, path in entries if kind not in {"??", "!!"}),
        unstaged=tuple(os.fsdecode(path) for kind, path in entries if kind[1] in "MTADU"),
        unmerged=tuple(os.fsdecode(path) for kind, path in entries if kind in UNMERGED),
        untracked=tuple(os.fsdecode(path) for kind, path in entries if kind == "??"),
        ignored=tuple(os.fsdecode(path) for kind, path in entries if kind == "!!"),
    )
    assert found == expected
    assert found.clean == all(kind == "!!" for kind, _ in entries)


def test_status_of_real_files(repo: Repo) -> None:
    """Each state once, under names with spaces, newlines and bytes that are no text."""
    names = {kind: f"{kind} \n\udcff" for kind in ("changed", "removed", "added", "new")}
    for kind in ("changed", "removed"):
        repo.write(names[kind], "x")
    repo.write(".gitignore", "*.o\nbuild/\n")
    repo.commit()
    repo.write(names["changed"], "y")
    repo.write(names["added"], "x")
    repo.git("add", "--", names["added"])
    (repo.path / names["removed"]).unlink()
    for name in (names["new"], "below/a b", "one.o", "build/two", "build/three"):
        repo.write(name)
    make_repo(repo.path / "nested")
    with start_status(git_in(repo.path)) as running:
        status = parse_status(git.finish_git(running, "status").stdout)
    assert status == Status(
        changed=(names["added"], names["changed"], names["removed"]),
        unstaged=(names["changed"], names["removed"]),
        unmerged=(),
        untracked=("below/a b", "nested/", names["new"]),
        ignored=("build/", "one.o"),
    )
    assert (status.nested, status.clean) == (("nested",), False)


def test_any_number_of_directories_can_be_left_out(repo: Repo) -> None:
    """Their paths are more than the arguments of a process may be, and git adds all the rest."""
    repo.write("left out/file", "x\n")
    repo.write("added", "x\n")
    many = [f"{number}{'n' * 240}/{'n' * 240}" for number in range(6000)]
    assert stage_all(git_in(repo.path), [*many, "left out"]) is None
    assert repo.git("diff", "--cached", "--name-only") == "added"
