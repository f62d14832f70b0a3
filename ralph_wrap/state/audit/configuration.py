"""The keys of a configuration file that make git run a program, or lead it elsewhere."""

from __future__ import annotations

import os
import re

from ralph_wrap.git.config_file import parse
from ralph_wrap.git.safe.config_keys import Effect, effect_of, is_of_git_lfs, pattern_of
from ralph_wrap.state.audit.finding import FindingKind
from ralph_wrap.state.audit.reader import Reader

_KINDS = {Effect.RUNS: FindingKind.KEY_RUNS, Effect.REDIRECTS: FindingKind.KEY_REDIRECTS}
_REMOTES = frozenset({"branch.*.remote", "branch.*.pushremote", "remote.pushdefault"})
_ADDRESS = re.compile(
    r".*[:/\\]|\.\.", re.DOTALL
)  # git takes such a text for an address, and others for a name
_HARMLESS = {
    "core.hookspath": {os.devnull},  # what "worktree create" writes to switch hooks off
}


def look_at_configuration(reader: Reader, path: str, work_tree: str | None = None) -> dict[str, str]:
    """Add the findings in a configuration file, and return the last value of each key.

    Arguments:
        work_tree: the value of ``core.worktree`` that belongs there, as in a submodule.

    """
    content = reader.content(path)
    if content is None:
        return {}
    reader.keep(path, content)
    try:
        entries = parse(content)
    except ValueError:
        reader.add(path, FindingKind.UNREADABLE, "", content)
        return {}
    values: dict[str, list[str]] = {}
    kinds: dict[str, FindingKind] = {}
    for key, value in entries:
        values.setdefault(key, []).append(value or "")
        if kind := _kind(key, value, path, work_tree):
            kinds[key] = kind
    for key, kind in kinds.items():
        reader.add(path, kind, key, *values[key])
    return {key: several[-1] for key, several in values.items()}


def _kind(key: str, value: str | None, path: str, work_tree: str | None) -> FindingKind | None:
    if value in _HARMLESS.get(key, ()) or is_of_git_lfs(key, value):
        return None
    if key == "core.worktree" and work_tree and _resolved(path, value or "") == work_tree:
        return None
    if pattern_of(key) in _REMOTES and _ADDRESS.match(value or ""):
        return FindingKind.KEY_REDIRECTS
    return _KINDS.get(effect_of(key, value))


def _resolved(path: str, value: str) -> str:
    """Return the directory that ``core.worktree`` names: it is relative to the git directory."""
    return os.path.realpath(os.path.join(os.path.dirname(path), value))  # noqa: PTH118, PTH120 -- Path is slow
