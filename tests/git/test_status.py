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

CHANGED = [x + y for x in ".MTAD" for y in ".MTAD" if x + y != ".."]
"""What ``git status`` can say of a tracked file without renames (git-status(1), *Short Format*)."""

ZEROS, MODES = "0" * 40, {"file": "100644", "submodule": "160000"}

ENTRIES = st.one_of(
    st.tuples(st.just("u"), st.sampled_from(UNMERGED), st.sampled_from(sorted(MODES))),
    st.tuples(st.just("1"), st.sampled_from(CHANGED), st.sampled_from(sorted(MODES))),
    st.tuples(st.sampled_from("?!"), st.just(""), st.just("file")),
)
PATHS = st.lists(st.integers(1, 255), min_size=1).map(bytes)


def _line(kind: str, letters: str, what: str, path: bytes) -> bytes:
    """Return an entry as git prints it (git-status(1), *Porcelain Format Version 2*)."""
    modes = {"1": 3, "u": 4}.get(kind, 0)
    words = [kind]
    if modes:
        words += [letters, "N...", *[MODES[what]] * modes, *[ZEROS] * (modes - 1)]
    return " ".join(words).encode() + b" " + path + b"\0"


@given(st.lists(st.tuples(ENTRIES, PATHS), unique_by=lambda pair: pair[1]))
def test_status_is_read_back(entries: list[tuple[tuple[str, str, str], bytes]]) -> None:
    """Whatever bytes the paths hold, each is in the lists that it belongs to, in order."""
    head = b"# branch.oid (initial)\0# branch.head (detached)\0# branch.upstream a b\0"
    found = parse_status(head + b"".join(_line(*entry, path) for entry, path in entries))
    rows = [(*entry, os.fsdecode(path)) for entry, path in entries]
    changed = [row for row in rows if row[0] in "1u"]
    expected = Status(
        changed=tuple(path for *_, path in changed),
        unstaged=tuple(path for _, letters, _, path in changed if letters[1] != "."),
        unmerged=tuple(path for kind, *_, path in changed if kind == "u"),
        removed=tuple(path for _, letters, _, path in changed if letters[0] == "D"),
        submodules=tuple(path for *_, what, path in changed if what == "submodule"),
        untracked=tuple(path for kind, *_, path in rows if kind == "?"),
        ignored=tuple(path for kind, *_, path in rows if kind == "!"),
    )
    assert found == expected
    assert found.clean == all(kind == "!" for kind, *_ in rows)


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
        head=repo.head,
        branch="main",
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
