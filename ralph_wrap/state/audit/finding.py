"""What an audit finds: one thing in a git directory, with its name, its effect, and how to take it away."""

from __future__ import annotations

import os
import shlex
from enum import Enum
from pathlib import Path

from ralph_wrap.git.remote import without_secrets
from ralph_wrap.system.files import digest
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


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


KEYS = frozenset({FindingKind.KEY_RUNS, FindingKind.KEY_REDIRECTS, FindingKind.CHANGED_ADDRESS})
"""The kinds whose name is a key of a configuration."""

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
        """The command that takes it away."""
        path = shlex.quote(self.path)
        if self.kind is FindingKind.REPLACE:
            return f"git update-ref -d {shlex.quote(self.name)}"
        if self.kind in {FindingKind.KEY_RUNS, FindingKind.KEY_REDIRECTS}:
            return f"git config --file {path} --unset-all {shlex.quote(self.name)}"
        if self.kind in {FindingKind.POINTER, FindingKind.UNREADABLE, FindingKind.CHANGED_ADDRESS}:
            return f"look at it, and write it anew: {path}"
        aside = shlex.quote(os.fspath(Path(self.path).with_name(f"aside-{Path(self.path).name}")))
        return f"mv {path} {aside}"


def digest_of(file: str, *parts: str | bytes) -> str:
    """Return a hash of a file and of what stands there."""
    found = digest.sha256(os.fsencode(file))
    for part in parts:
        content = part if isinstance(part, bytes) else os.fsencode(part)
        found.update(b"\0%d\0" % len(content) + content)
    return str(found.hexdigest())
