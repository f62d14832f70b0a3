"""Which commands of a project's configuration the user has approved.

An agent can write the configuration. So its commands run only if the user has approved exactly this text for
exactly this project. An approval is a hash in ``$XDG_STATE_HOME/ralph-wrap/trust/<project>.json``, which only
the user can write (see ``config.own_file``). It names the project root, and its hash is the hash of the text
that is about to run. The caller passes the text that it has read. So the text cannot change between question
and answer.

The user approves the text, not the programs that it runs: ``./setup.sh`` comes from the commit.
A program with the user's rights is not stopped: it can write the approval itself.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ralph_wrap.config import own_file
from ralph_wrap.errors import RalphError
from ralph_wrap.system import container, files
from ralph_wrap.system.document import DocumentFormat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMANDS = "trust"
"""The purpose of an approval of the commands in the project's configuration."""
REPOSITORY = "trust-git"
"""The purpose of an approval of what a repository's configuration makes git run."""

_FORMAT = DocumentFormat(version=1, largest=1 << 16, indent=1)


def implied(environ: Mapping[str, str]) -> str | None:
    """Return why commands need no approval in this process; ``None`` if they need one."""
    if environ.get("RALPH_TRUST") == "1":
        return "RALPH_TRUST=1"
    return "PID 1 is ralph-wrap init" if container.is_of_init() else None


def digest(commands: Mapping[str, Any]) -> str:
    """Return a hash that differs if the text of any command differs.

    Arguments:
        commands: by key, with the values of the configuration.

    """
    return hashlib.sha256(json.dumps(commands, sort_keys=True).encode()).hexdigest()


def is_approved(
    root: Path, commands: Mapping[str, Any], environ: Mapping[str, str], purpose: str = COMMANDS
) -> bool:
    """Return whether the user has approved exactly these commands of this project.

    Arguments:
        root: the project root, resolved.
        commands: by key.
        purpose: :data:`COMMANDS` or :data:`REPOSITORY`.

    Raises:
        RalphError: the directory of approvals is inside the project.

    """
    path = own_file.path_of(purpose, root, environ)
    try:
        if not own_file.counts(path):
            return False
        return _FORMAT.read(path, _facts) == (own_file.name_of(root), digest(commands))
    except (OSError, ValueError):
        return False


def _facts(approval: Mapping[str, Any]) -> tuple[object, object]:
    return approval["project"], approval["sha256"]


def approve(
    root: Path, commands: Mapping[str, Any], environ: Mapping[str, str], purpose: str = COMMANDS
) -> None:
    """Approve the commands of a project; this replaces an earlier approval.

    Arguments:
        root: the project root, resolved.
        commands: by key.
        purpose: see :func:`is_approved`.

    Raises:
        RalphError: the approval cannot be written.

    """
    path = own_file.path_of(purpose, root, environ)
    approval = {
        "project": own_file.name_of(root),
        "sha256": digest(commands),
        "commands": commands,
        "approved": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        own_file.write(path, _FORMAT.encode(approval))
    except OSError as error:
        raise _unwritable(path, error) from error


def revoke(root: Path, environ: Mapping[str, str], purpose: str = COMMANDS) -> bool:
    """Delete the approval of a project, and return whether there was one.

    Arguments:
        root: the project root, resolved.
        purpose: see :func:`is_approved`.

    Raises:
        RalphError: the approval cannot be deleted.

    """
    path = own_file.path_of(purpose, root, environ)
    try:
        path.unlink()
        files.fsync(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def _unwritable(path: Path, error: OSError) -> RalphError:
    return RalphError(
        f"{path} cannot be written: {error.strerror}",
        "set XDG_STATE_HOME to a writable directory outside the project, or RALPH_TRUST=1 for this run",
    )
