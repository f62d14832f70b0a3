"""What the user has approved of a project; :mod:`ralph_wrap.config.authority` lists what needs it.

An agent can write the configuration. So what it decides counts only if the user has approved exactly this
text for exactly this project. The approval is ``$XDG_STATE_HOME/ralph-wrap/trust/<project>.json``, which only
the user can write (see ``config.own_file``). It names the project root, and has the text that is about to
count. The caller passes the text that it has read. So the text cannot change between question and answer.

A key that the user has approved and that is gone needs an approval, too: an agent could take a check away.

The user approves the text, not the programs that it runs: ``./setup.sh`` comes from the commit.
A program with the user's rights is not stopped: it can write the approval itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ralph_wrap.config import own_file
from ralph_wrap.config.authority import APPROVALS, IMPLIES, OWNER, PROMPT, any_approved
from ralph_wrap.errors import RalphError, UntrustedError
from ralph_wrap.system import container, files
from ralph_wrap.system.document import DocumentFormat

COMMANDS = APPROVALS
"""The purpose of an approval of what the project decides."""
REPOSITORY = "trust-git"
"""The purpose of an approval of what a repository's configuration makes git run."""
FLEET = "trust-fleet"
"""The purpose of an approval of where the fleets of a project run."""
PUSH = "trust-push"
"""The purpose of an approval of the address to which branches are pushed for pull requests."""

_MAY_GO = {OWNER, os.fspath(PROMPT)}
_FORMAT = DocumentFormat(version=1, largest=1 << 16, indent=1)


def implied(environ: Mapping[str, str]) -> str | None:
    """Return why nothing needs an approval in this process; ``None`` if it does."""
    if environ.get(IMPLIES) == "1":
        return f"{IMPLIES}=1"
    return "PID 1 is ralph-wrap init" if container.is_of_init() else None


def digest(commands: Mapping[str, Any]) -> str:
    """Return a hash that differs if the text of any key differs.

    Arguments:
        commands: by key, with their values.

    """
    return hashlib.sha256(json.dumps(dict(commands), sort_keys=True).encode()).hexdigest()


def is_approved(
    root: Path, commands: Mapping[str, Any], environ: Mapping[str, str], purpose: str = COMMANDS
) -> bool:
    """Return whether the user has approved exactly these values; see :func:`unapproved`."""
    return not unapproved(root, commands, environ, purpose)


def unapproved(
    root: Path, stated: Mapping[str, Any], environ: Mapping[str, str], purpose: str = COMMANDS
) -> dict[str, Any]:
    """Return what the user has not approved of what this project decides, by key.

    Arguments:
        root: the project root, resolved.
        stated: what the project decides, by key.
        purpose: :data:`COMMANDS`, :data:`REPOSITORY` or :data:`PUSH`.

    Returns:
        The values; ``None`` for a key that the user has approved and that is gone.

    Raises:
        RalphError: the directory of approvals is inside the project.

    """
    approved = _approved(root, environ, purpose)
    missing = object()
    changed = {key: value for key, value in stated.items() if approved.get(key, missing) != value}
    return changed | dict.fromkeys(approved.keys() - stated.keys() - _MAY_GO)


def _approved(root: Path, environ: Mapping[str, str], purpose: str) -> dict[str, Any]:
    path = own_file.path_of(purpose, root, environ)
    try:
        if not own_file.counts(path):
            return {}
        project, commands = _FORMAT.read(path, _facts)
    except (OSError, ValueError):
        return {}
    return commands if project == own_file.name_of(root) else {}


def _facts(approval: Mapping[str, Any]) -> tuple[object, dict[str, Any]]:
    return approval["project"], dict(approval["commands"])


def require(
    root: Path, stated: Mapping[str, Any], environ: Mapping[str, str], depends: Callable[[str], bool]
) -> None:
    """Check that the user has approved what a project decides.

    Arguments:
        root: the project root, resolved.
        stated: what the project decides, by key.
        depends: tells whether a key matters here. The owner of the file always does.

    Raises:
        UntrustedError: the user has not approved a key that matters.
        RalphError: the directory of approvals is inside the project.

    """
    if not (stated or any_approved(environ)) or implied(environ):
        return
    missing = unapproved(root, stated, environ)
    if keys := [
        f"{key} (removed)" if value is None else key
        for key, value in missing.items()
        if key == OWNER or depends(key)
    ]:
        raise UntrustedError(
            f"the project has settings that you have not approved: {', '.join(keys)}",
            f"to see and approve them: ralph-wrap trust -C {shlex.quote(os.fspath(root))}",
        )


def approve(
    root: Path, commands: Mapping[str, Any], environ: Mapping[str, str], purpose: str = COMMANDS
) -> None:
    """Approve what a project decides; this replaces an earlier approval.

    Arguments:
        root: the project root, resolved.
        commands: what the project decides, by key.
        purpose: see :func:`unapproved`.

    Raises:
        RalphError: the approval cannot be written.

    """
    path = own_file.path_of(purpose, root, environ)
    approval = {
        "project": own_file.name_of(root),
        "commands": dict(commands),
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
        purpose: see :func:`unapproved`.

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
