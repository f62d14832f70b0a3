"""Check the objects of branches, and find the branches whose objects are damaged, missing or replaced.

Git believes an object whose content is not what its id says, and ends at a damaged one. An agent can write
either. So the objects behind each fact are hashed. If something is wrong, each branch is looked at, and only
those with wrong objects stay without facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ralph_wrap.branches.ancestry import ancestry, numbered
from ralph_wrap.branches.positions import Positions, positions
from ralph_wrap.errors import BlockingFileError, GitError
from ralph_wrap.git import Git
from ralph_wrap.git.compare import entries, facts_of, history
from ralph_wrap.git.index import GITLINK
from ralph_wrap.git.safe.batch import read_all
from ralph_wrap.git.safe.genuine import checked, require_objects, root_of

_MOST_TRIALS = 300  # git commands that look for the branches at which git ends


def require_history(objects: Git, found: Positions) -> set[str]:
    """Check the commits between branches and the main branch, and return the ids of their top directories.

    Arguments:
        objects: git in a shadow git directory.

    Raises:
        TamperedError: an object holds something else than its name says.

    """
    bases = {position.base for position in found.of.values() if position.base}
    commits = {*found.ahead.parents, *found.main.parents, *bases}
    return {root_of(content) for _, content in checked(objects, commits)}


def require_contents(objects: Git, changes: Iterable[Mapping[str, str]]) -> None:
    """Check the contents of changed files.

    Raises:
        TamperedError: an object holds something else than its name says.

    """
    require_objects(objects, {oid for files in changes for oid in _contents(files)})


def damaged(objects: Git, main: str, tips: Collection[str]) -> dict[str, str]:
    """Return what is wrong with the objects of tips; those without a problem are left out.

    Arguments:
        objects: git in a shadow git directory.
        main: the tip of the main branch.
        tips: object ids.

    Raises:
        GitError: the history of the main branch cannot be read.

    """
    found = {
        read_object.oid: read_object.problem or f"object {read_object.oid} is not a commit"
        for read_object in read_all(objects, {*tips})
        if read_object.kind != b"commit" or read_object.problem
    }
    sound = [tip for tip in tips if tip not in found]
    found |= _failing(sound, lambda part: history(objects, part, [main]))
    sound = [tip for tip in tips if tip not in found]
    ahead = history(objects, sound, [main]).parents
    roots = {}
    wrong = {}
    for read_object in read_all(objects, ahead):
        if read_object.problem:
            wrong[read_object.oid] = read_object.problem
        else:
            roots[read_object.oid] = root_of(read_object.content)
    holding = ancestry(ahead, numbered(wrong), sound)
    found |= {tip: next(iter(wrong.values())) for tip in sound if holding.get(tip)}
    sound = [tip for tip in ahead if tip in {*tips} and tip not in found]
    placed = positions(objects, main, sound, facts_of(objects, [*sound, main])).of
    spans = {tip: placed[tip].base for tip in sound}
    return found | _damaged_files(objects, {tip: base for tip, base in spans.items() if base}, roots)


def _damaged_files(objects: Git, spans: Mapping[str, str], roots: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with the directories and files in which tips differ from their merge bases."""
    found = _failing([*spans], lambda part: [*entries(objects, [(tip, spans[tip]) for tip in part])])
    sound = [tip for tip in spans if tip not in found]
    needed: dict[str, list[str]] = {}
    for tip in sound:
        needed.setdefault(roots[tip], []).append(tip)

    def note(number: int, tree: str) -> None:
        needed.setdefault(tree, []).append(sound[number])

    listed = entries(objects, [(tip, spans[tip]) for tip in sound], note)
    for tip, files in zip(sound, listed, strict=True):
        for oid in _contents(files):
            needed.setdefault(oid, []).append(tip)
    for read_object in read_all(objects, needed):
        if read_object.problem:
            found |= dict.fromkeys(needed[read_object.oid], read_object.problem)
    return found


def _contents(files: Mapping[str, str]) -> Iterator[str]:
    """Yield the ids of the contents of changed files, from entries of ``git diff-tree --raw``."""
    for entry in files.values():
        words = entry.lstrip(":").split(" ")[:-1]
        half = len(words) // 2
        for mode, oid in zip(words[:half], words[half:], strict=True):
            if mode != GITLINK and oid.strip("0"):
                yield oid


def _failing(tips: Sequence[str], attempt: Callable[[Sequence[str]], object]) -> dict[str, str]:
    """Return the tips at which git ends, each with the reason.

    It halves the tips until single ones are left. After :data:`_MOST_TRIALS` attempts, all tips of a group
    count that git cannot read.
    """
    found: dict[str, str] = {}
    waiting, left = [tips], _MOST_TRIALS
    while waiting:
        group = waiting.pop()
        left -= 1
        try:
            attempt(group)
        except BlockingFileError:
            raise
        except GitError as error:
            if len(group) == 1 or left < 0:
                found |= dict.fromkeys(group, error.message)
            else:
                half = len(group) // 2
                waiting += [group[:half], group[half:]]
    return found
