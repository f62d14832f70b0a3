"""Which objects a partial clone may lack: those that its remote has promised to send.

What git gets from such a remote is in packs with a ``.promisor`` file. Each object that an object in these
packs names is promised (git's *Partial Clone Design Notes*). A missing one of any other origin is damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import Git, decode_lines, run_git
from ralph_wrap.git.object_reader import Answer, ObjectReader
from ralph_wrap.git.raw_objects import TreeEntry, parse_commit, parse_tag, tree_entries
from ralph_wrap.git.safe.common_dir import configuration

_ALTERNATE = "alternate: "


class Promises:
    """The promised objects of a repository; nothing is read before the first question.

    Arguments:
        git: git without configuration in a temporary directory (:mod:`ralph_wrap.git.object_reader`).

    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._promisor_objects: Git | None = None
        self._is_prepared = False
        self._named: set[str] | None = None

    def include(self, oid: str, user: str) -> bool:
        """Return whether a missing object is promised.

        Arguments:
            user: an object that names it; empty if none is known.

        """
        if not self._is_prepared:
            self._is_prepared = True
            self._promisor_objects = self._prepare()
        if self._promisor_objects is None:
            return False
        if user:
            with ObjectReader(self._promisor_objects) as reader:
                if reader.read(user).kind:
                    return True
        if self._named is None:
            self._named = {*_named_in(self._promisor_objects)}
        return oid in self._named

    def _prepare(self) -> Git | None:
        """Return git in an object directory that has the packs of promisor remotes alone."""
        assert self._git.git_dir is not None
        assert self._git.objects is not None
        packs = [
            pack
            for objects in _object_directories(self._git)
            if _has_promisor(objects.parent)
            for pack in sorted((objects / "pack").glob("*.promisor"))
        ]
        if not packs:
            return None
        directory = self._git.git_dir / "promised"
        (directory / "pack").mkdir(parents=True)
        for pack in packs:
            for suffix in (".pack", ".idx"):
                link = directory / "pack" / pack.with_suffix(suffix).name
                if not link.is_symlink():  # an alternate may have the same pack
                    link.symlink_to(pack.with_suffix(suffix))
        env = {name: value for name, value in self._git.env.items() if "ALTERNATE" not in name}
        return self._git._replace(env=env, objects=directory)


def _object_directories(git: Git) -> Iterator[Path]:
    """Yield the object directory, and those from which it borrows."""
    assert git.objects is not None
    yield git.objects
    for line in decode_lines(run_git(git, "count-objects", "-v").stdout):
        if line.startswith(_ALTERNATE):  # one with unusual letters is quoted, and not found here
            yield git.objects / line.removeprefix(_ALTERNATE)


def _has_promisor(common_dir: Path) -> bool:
    try:
        keys = {key for key, _ in configuration(common_dir)}
    except GitError:
        return False
    return any(
        key == "extensions.partialclone" or (key.startswith("remote.") and key.endswith(".promisor"))
        for key in keys
    )


def _named_in(git: Git) -> Iterator[str]:
    """Yield the ids of all objects that the objects of a repository name."""
    check = ("--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    rows = [row.split(" ") for row in decode_lines(run_git(git, "cat-file", *check).stdout)]
    wanted = [oid for oid, kind in rows if kind != "blob"]
    with ObjectReader(git) as reader:
        for oid, answer in reader.read_all(wanted):
            try:
                yield from _named_by(answer, len(oid))
            except ValueError:
                continue


def _named_by(answer: Answer, digits: int) -> list[str]:
    """Return the ids of the objects that an object names.

    Raises:
        ValueError: it is malformed.

    """
    if answer.kind == "commit":
        commit = parse_commit(answer.content)
        return [commit.tree, *commit.parents]
    if answer.kind == "tag":
        return [parse_tag(answer.content)[0]]
    return [TreeEntry(*entry).oid for entry in tree_entries(answer.content, digits)]
