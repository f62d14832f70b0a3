"""What this user's machine remembers of a project's audits: accepted findings, and how files were.

It stands in ``$XDG_STATE_HOME/ralph-wrap/audit/<project>.json``, outside the project (see
``config.own_file``). An agent in a container that mounts only the project cannot write it. An agent with the
user's rights and home can.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.config import own_file
from ralph_wrap.errors import RalphError
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.text import command

_PURPOSE = "audit"
_FORMAT = DocumentFormat(version=1, largest=1 << 24, indent=1)
_LARGEST_COPY = 1 << 16  # bytes of a file that an undo can put back
_MOST_COPIES = 500


class AuditMemory(NamedTuple):
    """The memory of a project.

    Attributes:
        accepted: titles of accepted findings, by digest.
        since: for the other findings, by digest, when they were seen for the first time, in words.
        contents: files as they were when an audit last found nothing, by shown path.
        looked: the time of the last audit without a finding: UTC, ISO 8601; empty if there was none.

    """

    accepted: Mapping[str, str]
    since: Mapping[str, str]
    contents: Mapping[str, bytes]
    looked: str = ""


NOTHING = AuditMemory({}, {}, {})
"""The memory of a project that this machine has not seen."""


def recall(root: Path, environ: Mapping[str, str]) -> AuditMemory | None:
    """Return what is remembered of a project; ``None`` if this machine has not seen it.

    Arguments:
        root: the project root, resolved.

    Raises:
        RalphError: it cannot be read, or others can have written it. It stays as it is: it holds what an undo
            would put back.

    """
    try:
        path = own_file.path_of(_PURPOSE, root, environ)
    except RalphError:  # nothing can be remembered
        return None
    try:
        path.lstat()
    except (FileNotFoundError, PermissionError):  # a directory of another user holds none of ours
        return None
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error}") from None
    try:
        if own_file.counts(path):
            return _FORMAT.read(path, lambda fields: _meaning(fields, own_file.name_of(root)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"cannot be read: {error}") from None
    raise _unreadable(path, "does not count: it is a symlink, or others can write it")


def _unreadable(path: Path, reason: str) -> RalphError:
    return RalphError(
        f"what this machine remembers of the project {reason}; so nothing counts as accepted",
        f"to begin anew, and keep the file: {command('mv', path, f'{path}.unreadable')}",
    )


def _meaning(fields: Mapping[str, Any], project: str) -> AuditMemory:
    if fields["project"] != project:
        raise ValueError("another project")
    return convert_fields(fields, AuditMemory)


def remember(root: Path, environ: Mapping[str, str], memory: AuditMemory) -> None:
    """Replace what is remembered of a project.

    Arguments:
        root: the project root, resolved.

    Raises:
        RalphError: there is no directory outside the project that only the user can write.
        OSError: the file cannot be written.

    """
    small = {
        shown_path: content
        for shown_path, content in memory.contents.items()
        if len(content) <= _LARGEST_COPY
    }
    contents = {
        shown_path: base64.b64encode(content).decode()
        for shown_path, content in [*small.items()][:_MOST_COPIES]
    }
    fields = {**memory._asdict(), "project": own_file.name_of(root), "contents": contents}
    own_file.write(own_file.path_of(_PURPOSE, root, environ), _FORMAT.encode(fields))
