"""What an audit finds: one thing in a git directory, with its name, its effect, and how to take it away."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git.remote import without_secrets
from ralph_wrap.system.text import command, plain


class FindingKind(Enum):
    """The kind of a finding, as JSON has it."""

    KEY_RUNS = "key-runs"
    KEY_REDIRECTS = "key-redirects"
    HOOK = "hook"
    ATTRIBUTES = "attributes"
    GRAFTS = "grafts"
    SHALLOW = "shallow"
    REPLACE = "replace"
    ALTERNATES = "alternates"
    COMMON_DIR = "commondir"
    POINTER = "pointer"
    REMOTE_FILE = "remote-file"
    TODO = "todo"
    NOT_PLAIN = "not-plain"
    UNREADABLE = "unreadable"
    TOO_MANY = "too-many"
    CHANGED_ADDRESS = "changed-address"
    COMMIT_GRAPH = "commit-graph"
    CHANGED_IDENTITY = "changed-identity"
    CHANGED_REMOTE = "changed-remote"


CHANGES = frozenset({FindingKind.CHANGED_ADDRESS, FindingKind.CHANGED_IDENTITY, FindingKind.CHANGED_REMOTE})
"""The kinds whose name is a key that had another value, or none, when an audit last found nothing."""

KEYS = frozenset({FindingKind.KEY_RUNS, FindingKind.KEY_REDIRECTS}) | CHANGES
"""The kinds whose name is a key of a configuration."""

WARNED_OF = frozenset({FindingKind.CHANGED_IDENTITY, FindingKind.CHANGED_REMOTE})
"""The kinds of which all commands warn, and for which none refuses: users change these keys themselves."""

REMOVABLE = frozenset(
    {
        FindingKind.HOOK,
        FindingKind.ATTRIBUTES,
        FindingKind.GRAFTS,
        FindingKind.SHALLOW,
        FindingKind.ALTERNATES,
        FindingKind.REMOTE_FILE,
        FindingKind.TODO,
        FindingKind.COMMIT_GRAPH,
    }
)
"""The kinds that can go without anything in their place."""

EFFECTS: Mapping[FindingKind, str] = {
    FindingKind.KEY_RUNS: "git runs a program that this key names",
    FindingKind.KEY_REDIRECTS: "this key leads git to other files, addresses or repositories",
    FindingKind.HOOK: "git runs it as a hook",
    FindingKind.ATTRIBUTES: "git gives files to the filters, drivers and converters that it names",
    FindingKind.GRAFTS: "git believes other parents of commits than the commits have",
    FindingKind.SHALLOW: "git takes the named commits for the beginning of the history",
    FindingKind.REPLACE: "git shows other content in the place of an object",
    FindingKind.ALTERNATES: "git also reads objects from another directory",
    FindingKind.COMMON_DIR: "git works in the repository that it names, with its configuration and hooks",
    FindingKind.POINTER: "git works in another repository than the one of this checkout",
    FindingKind.REMOTE_FILE: "git fetches and pushes at the address in it",
    FindingKind.TODO: "git rebase --continue runs the commands in it",
    FindingKind.NOT_PLAIN: "git hangs, or reads and writes elsewhere: it is no plain file or directory",
    FindingKind.UNREADABLE: "git cannot read it, or reads more of it than an audit does",
    FindingKind.TOO_MANY: "the audit has not looked at all of it",
    FindingKind.CHANGED_ADDRESS: "git fetches and pushes at another address than before",
    FindingKind.COMMIT_GRAPH: "git believes other parents of commits than the commits have",
    FindingKind.CHANGED_IDENTITY: "git gives commits another author or signature than before",
    FindingKind.CHANGED_REMOTE: "git fetches or pushes elsewhere, or other refs, than before",
}
"""What plain git does with a finding."""


class Finding(NamedTuple):
    """One thing that an audit found.

    Attributes:
        shown_path: its path for people, below the project root if it is inside.
        path: its absolute path.
        kind: what it is.
        name: the key, the ref or the entry in it; empty if *shown_path* says it all. Never a value.
        digest: hash of its content; what the user has accepted is known by it.

    """

    shown_path: str
    path: str
    kind: FindingKind
    name: str = ""
    digest: str = ""

    @property
    def title(self) -> str:
        """Its path and name in one line, without control characters and passwords."""
        return plain(f"{self.shown_path}: {self.shown_name}" if self.name else self.shown_path)

    @property
    def shown_name(self) -> str:
        """Its name without the password that an address in a key can have."""
        return without_secrets(self.name)

    @property
    def line(self) -> str:
        """Its title and its effect in one line."""
        return f"{self.title}: {EFFECTS[self.kind]}"

    @property
    def remedy(self) -> str:
        """The command that takes it away, or what helps to do it by hand."""
        if self.kind is FindingKind.REPLACE:
            return command("git", "update-ref", "-d", self.name)
        if self.kind in {FindingKind.KEY_RUNS, FindingKind.KEY_REDIRECTS}:
            return command("git", "config", "--file", self.path, "--unset-all", self.name)
        if self.kind in CHANGES:
            return "ralph-wrap audit --undo"
        if self.kind in {FindingKind.POINTER, FindingKind.UNREADABLE, FindingKind.TOO_MANY}:
            return f"look at it, and write it anew: {shlex.quote(self.path)}"
        return self._set_aside()

    def _set_aside(self) -> str:
        """Return the command after which git does not read the file any more."""
        place = Path(self.path)
        if self.kind is FindingKind.HOOK:  # git would run it in any file of this directory
            return command("chmod", "a-x", place)
        if self.kind is FindingKind.NOT_PLAIN and (place.is_symlink() or not place.is_dir()):
            return command("rm", place)
        folder = place.parent
        if self.kind is FindingKind.REMOTE_FILE:  # git would read it in any file of this directory
            folder = folder.parent
        return command("mv", place, folder / f"aside-{place.name}")


def digest_of(file: str, *parts: str | bytes) -> str:
    """Return a hash of a file and of what stands there."""
    found = hashlib.sha256(os.fsencode(file))
    for part in parts:
        content = part if isinstance(part, bytes) else os.fsencode(part)
        found.update(b"\0%d\0" % len(content) + content)
    return str(found.hexdigest())
