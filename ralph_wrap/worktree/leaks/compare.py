"""The changes outside a workspace between two observations, in neutral words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, decode, run_git
from ralph_wrap.state.landings import Landing
from ralph_wrap.system.text import plain
from ralph_wrap.worktree.leaks.observation import BRANCHES, CONFIGURATIONS, IGNORE, FileState, Observation

_TAGS = "refs/tags/"
_SHORT = 7  # digits of an object id
_SESSIONS_BRANCH = "branch.ralph/"  # git keeps the case of the part between the dots


class Change(NamedTuple):
    """One change.

    Attributes:
        words: what has changed, in a few words.
        purpose: what *arguments* are for: *to bring it back* what is lost, or *to see it*.
        arguments: of git in the checkout; none if no single command helps.

    """

    words: str
    purpose: str = ""
    arguments: tuple[str, ...] = ()


def compare(
    before: Observation,
    after: Observation,
    keys: Callable[[bytes, bytes], list[str]],
    landed: Collection[Landing] = (),
) -> list[Change]:
    """Return the changes between two observations, with files last.

    Arguments:
        before: the earlier observation.
        after: the later observation.
        keys: returns the keys that differ between two texts of a configuration file.
        landed: the moves of ``ralph-wrap merge``.

    """
    return [
        *map(Change, _changed_files(before.kept, after.kept, keys)),
        *_changed_refs(before, after, landed),
        *_changed_stash(before, after),
        *map(Change, _changed_entries(before, after)),
    ]


def _changed_entries(before: Observation, after: Observation) -> Iterator[str]:
    moved = before.commit != after.commit
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        if old == new:
            continue
        if new is None and moved:  # probably committed; the move of HEAD is in the list
            continue
        if path == IGNORE and before.ignore == after.ignore:
            continue
        yield f"{path} ({_in_words(old, new)})"


def _in_words(before: FileState | None, after: FileState | None) -> str:
    if after is None:
        return "gone" if before and before.state == "?" else "restored"
    index = after.state[0]
    if before is not None and before.disk == after.disk:
        return "unstaged" if index in ".?" else "staged"
    if not after.disk and after.state != "?":
        return "deleted"
    if before is not None:
        return "modified"
    return {"?": "new", "A": "new, staged", "D": "staged"}.get(index, "modified")


def _changed_refs(before: Observation, after: Observation, landed: Collection[Landing]) -> Iterator[Change]:
    if before.head != after.head and not (_is_commit(before) and _is_commit(after)):
        yield Change(f"HEAD moved from {_short(before.head)} to {_short(after.head)}")
    elif before.head != after.head:
        yield Change(f"HEAD, on no branch, moved from {_short(before.head)} to {_short(after.head)}")
    in_our_worktrees = before.held | after.held
    for name in sorted(before.refs.keys() | after.refs.keys()):
        old, new = before.refs.get(name, ""), after.refs.get(name, "")
        if old == new or name in in_our_worktrees or _has_landed(name, old, new, landed):
            continue
        if not old:
            yield Change(f"{_named(name)} created at {_short(new)}")
        elif not new:
            # The full name: an agent may have given a branch or a tag the name of an option.
            words = f"{_named(name)} deleted, was at {_short(old)}"
            yield Change(words, "to bring it back", ("update-ref", name, old))
        else:
            yield Change(f"{_named(name)} moved from {_short(old)} to {_short(new)}")


def _changed_stash(before: Observation, after: Observation) -> Iterator[Change]:
    """Yield the entries that are gone, and the new ones; no ref holds the commit of one that is gone."""
    if (before.stash, before.stash_log) == (after.stash, after.stash_log):
        return
    old, new = before.stashed, after.stashed
    if old is None or new is None or old.keys() == new.keys():
        earlier = ("stash", "show", "-p", before.stash)
        yield Change("the stash changed", *(("to see the earlier entry", earlier) if before.stash else ()))
        return
    for oid, title in old.items():
        if oid not in new:
            store = ("stash", "store", *(("-m", plain(title)) if title else ()), oid)
            yield Change(f"{_entry(title)} gone, was at {_short(oid)}", "to bring it back", store)
    for oid, title in new.items():
        if oid not in old:
            seen = ("stash", "show", "-p", oid)
            yield Change(f"{_entry(title)} created at {_short(oid)}", "to see it", seen)


def _entry(title: str) -> str:
    return f'stash entry "{plain(title)}"' if title else "a stash entry"


def _has_landed(name: str, old: str, new: str, landed: Collection[Landing]) -> bool:
    """Return whether landings alone moved a branch from one commit to another."""
    steps = {before: after for ref, before, after in landed if ref == name}
    commit = old
    for _ in range(len(steps)):
        commit = steps.get(commit, "")
        if commit == new:
            return True
    return False


def _is_commit(outside: Observation) -> bool:
    return not outside.head.startswith("refs/")


def _short(name: str) -> str:
    return name.removeprefix(BRANCHES) if name.startswith("refs/") else name[:_SHORT]


def _named(ref: str) -> str:
    for prefix, kind in ((BRANCHES, "branch"), (_TAGS, "tag")):
        if ref.startswith(prefix):
            return f"{kind} {ref.removeprefix(prefix)}"
    return ref


def _changed_files(
    before: Mapping[str, bytes], after: Mapping[str, bytes], keys: Callable[[bytes, bytes], list[str]]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, b""), after.get(name, b"")
        if old == new:
            continue
        shown = name if name == ".git" else f".git/{name}"
        if name.endswith(CONFIGURATIONS) and not name.startswith(("hooks/", "info/")):
            if changed := keys(old.partition(b" ")[2], new.partition(b" ")[2]):
                yield f"{shown} changed: {', '.join(changed)}"
        elif old and new:
            yield f"{shown} changed"
        else:
            yield f"{shown} {'created' if new else 'deleted'}"


def changed_keys(git: Git, before: bytes, after: bytes) -> list[str]:
    """Return the keys that differ between two texts of a configuration file, without their values.

    Values, and addresses in keys (``url.<base>.insteadOf``), may hold passwords.
    """
    try:
        old, new = _parsed(git, before), _parsed(git, after)
    except GitError:
        return ["git cannot read it"]
    differing = (key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return sorted({_presentable(key) for key in differing if not key.startswith(_SESSIONS_BRANCH)})


def _parsed(git: Git, content: bytes) -> dict[str, list[str]]:
    output = run_git(git, "config", "--file", "-", "--no-includes", "--list", "-z", stdin=content).stdout
    found: dict[str, list[str]] = {}
    for entry in decode(output).split("\0")[:-1]:
        key, _, value = entry.partition("\n")
        found.setdefault(key, []).append(value)
    return found


def _presentable(key: str) -> str:
    section, _, rest = key.partition(".")
    inner, _, name = rest.rpartition(".")
    return f"{section}.….{name}" if ":" in inner or "@" in inner else key
