"""Ask the user whether what a project decides may count."""

from __future__ import annotations

import json
import os
import select
import shlex
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.config import Settings, prompt_file, trust
from ralph_wrap.config.authority import LEADS_TO, PROMPT
from ralph_wrap.config.repository_trust import consequences, entries_to_approve, lines_of, trust_root
from ralph_wrap.errors import UntrustedError
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.system import privileges
from ralph_wrap.system.log import Commands, get_logger, one_line
from ralph_wrap.system.signals import SignalHandlers, suspend
from ralph_wrap.system.text import some

log = get_logger()

_LINES = 60  # of a prompt file; a terminal scrolls the first ones away
_ANSWER = 1024  # bytes; a terminal returns one line per read


def require(
    project: Project,
    settings: Settings,
    depends: Callable[[str], bool],
    signals: SignalHandlers | None,
) -> None:
    """Check that the user has approved what a command obeys of its project; if not, ask on the terminal.

    Arguments:
        settings: of the command. The user approves the text in them; it is not read again.
        depends: tells whether the command depends on a key.
        signals: entered handlers.

    Raises:
        UntrustedError: the user has not approved them, and does not now.
        RalphError: the approval cannot be written.

    """
    stated = settings.stated
    approval = trust.implied(project.environ) or "ralph-wrap trust"
    try:
        trust.require(project.main, stated, project.environ, depends)
    except UntrustedError:
        if not can_ask():
            raise
        ask(project, decided_by(project, stated), signals)
        approval = "answer"
    if any(map(depends, stated)):
        log.event("commands.approved", by=approval, sha256=trust.digest(stated))


class Approvable(NamedTuple):
    """What the user approves at once.

    Attributes:
        commands: the values, by key.
        source: the file or the directory that has them.
        root: the directory that names them in the approval.
        purpose: :data:`trust.COMMANDS` or :data:`trust.REPOSITORY`.

    """

    commands: Mapping[str, Any]
    source: Path
    root: Path
    purpose: str


def decided_by(project: Project, stated: Mapping[str, Any]) -> Approvable:
    """Return what a project decides as something to approve."""
    return Approvable(stated, project.main, project.main, trust.COMMANDS)


def lines_of_repository(project: Project) -> Approvable | None:
    """Return what the repository's configuration makes git run; ``None`` if that is nothing."""
    if project.repository is None or not (entries := entries_to_approve(project.repository)):
        return None
    source = project.repository.common_dir / "config"
    return Approvable(lines_of(entries), source, trust_root(project.repository), trust.REPOSITORY)


def warn_of_programs(project: Project) -> None:
    """Name once what the repository's configuration makes git run, if the user has not approved it."""
    if project.repository is None or project.git.safe is None or not project.git.safe.off:
        return
    off = project.git.safe.off
    keys = ", ".join(dict.fromkeys(one_line(entry.key) for entry in off))
    meaning = consequences(off, project.checkout, project.repository.common_dir)
    log.warning(
        "repository.programs_off",
        f"git ignores {keys} of .git/config, which you have not approved"
        + "".join(f"; {one_line(clause)}" for clause in meaning),
        f"to see and approve them: ralph-wrap trust -C {shlex.quote(os.fspath(project.main))}",
    )


def approve(project: Project, wanted: Approvable, signals: SignalHandlers | None) -> None:
    """Approve values: on a terminal after the user's answer, elsewhere by the call alone.

    Arguments:
        wanted: the values.
        signals: entered handlers.

    Raises:
        UntrustedError: the user answered no, or the caller is inside a session.
        RalphError: the approval cannot be written.

    """
    if can_ask():
        ask(project, wanted, signals)
        return
    if session := project.environ.get("RALPH_SESSION_ID"):
        raise UntrustedError(
            f"settings cannot be approved inside session {session}, without a terminal",
            f"run this outside the session: ralph-wrap trust -C {shlex.quote(os.fspath(project.main))}",
        )
    _approve(project, wanted)


def _approve(project: Project, wanted: Approvable) -> None:
    trust.approve(wanted.root, wanted.commands, privileges.ensure_home(project.environ), wanted.purpose)


def require_push(project: Project, remote: str, address: str) -> None:
    """Check that the user has approved a push to an address; if not, show it and ask on the terminal.

    Raises:
        UntrustedError: the user has not approved it, and does not now.
        RalphError: the approval cannot be written.

    """
    repository = repository_of(project)
    source = repository.common_dir / "config"
    wanted = Approvable({f"push to {remote}": address}, source, trust_root(repository), trust.PUSH)
    approval = trust.implied(project.environ)
    if approval is None and trust.is_approved(wanted.root, wanted.commands, project.environ, wanted.purpose):
        approval = "earlier answer"
    if approval is None:
        if not can_ask():
            raise UntrustedError(
                f"you have not approved a push to {one_line(address)}, the address of {one_line(remote)}",
                Commands.of("type the command on a terminal, which asks you", "in a script: RALPH_TRUST=1"),
            )
        ask(project, wanted, None)
        approval = "answer"
    log.event("push.approved", f"{remote} is {one_line(address)}", by=approval)


def can_ask() -> bool:
    """Return whether stdin and stderr are a terminal where the user can see a question and answer it."""
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it is not the controlling terminal of this process
        return False


def ask(project: Project, wanted: Approvable, signals: SignalHandlers | None) -> None:
    """Show values on the terminal, and approve them if the answer is yes.

    Raises:
        UntrustedError: the answer is no.
        RalphError: the approval cannot be written.

    """
    rows = [
        f"ralph-wrap: settings of {one_line(os.fspath(wanted.source))}",
        *shown(wanted.commands),
        *_prompt(wanted),
        *removed(trust.unapproved(wanted.root, wanted.commands, project.environ, wanted.purpose)),
    ]
    if not confirm(rows, "approve these settings for all sessions of this project?", signals):
        raise UntrustedError("the settings were not approved", "nothing was run; ralph-wrap trust asks again")
    _approve(project, wanted)


def _prompt(wanted: Approvable) -> Iterator[str]:
    """Yield the text of the prompt file that the user approves: an agent will do what it says."""
    for key in ("prompt_file", os.fspath(PROMPT)):
        value = wanted.commands.get(key) if wanted.purpose == trust.COMMANDS else None
        if not isinstance(value, str):
            continue
        path = wanted.root / value.partition(LEADS_TO)[0]
        try:
            text = prompt_file.read(path).decode("utf-8", "replace").rstrip("\n")
        except OSError as error:
            yield f"  {one_line(os.fspath(path))} cannot be read: {error.strerror}"
            continue
        yield f"  {one_line(os.fspath(path))} has this text:"
        yield from (f"    | {line}" for line in some(list(map(one_line, text.split("\n"))), _LINES, " lines"))


def confirm(rows: Sequence[str], question: str, signals: SignalHandlers | None) -> bool:
    """Show lines on the terminal, ask a question, and return whether the answer is yes."""
    return read_answer(rows, f"{question} [y/N] ", signals).strip().lower() in {b"y", b"yes"}


def read_answer(rows: Sequence[str], question: str, signals: SignalHandlers | None) -> bytes:
    """Show lines and a question on the terminal, and return the typed line; empty at end of input."""
    termios.tcflush(0, termios.TCIFLUSH)  # words typed before the question are no answer
    os.write(2, "\n".join([*rows, question]).encode(errors="backslashreplace"))
    return _answer(signals)


def removed(missing: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key that the user has approved and that is gone."""
    return (
        f"  {one_line(key)}: removed since your approval" for key, value in missing.items() if value is None
    )


def shown(commands: Mapping[str, Any]) -> Iterator[str]:
    """Yield values as lines without terminal controls; an indent marks them as quoted text."""
    for key, value in commands.items():
        if key == value:  # the default prompt, whose key is its path
            yield f"  {one_line(key)} is the prompt"
            continue
        first_line, *other_lines = (value if isinstance(value, str) else json.dumps(value)).split("\n")
        if not other_lines:
            yield f"  {key}: {one_line(first_line)}"
            continue
        yield f"  {key}:"
        yield from (f"    | {one_line(line)}" for line in (first_line, *other_lines))


def _answer(signals: SignalHandlers | None) -> bytes:
    """Return a line from the terminal; empty at end of input."""
    if signals is None:
        return os.read(0, _ANSWER)
    poll = select.poll()  # the handlers only count, so a signal does not interrupt a read
    poll.register(0, select.POLLIN)
    poll.register(signals.wakeup, select.POLLIN)
    while signals.cancel.first is None:
        ready = {descriptor for descriptor, _ in poll.poll()}
        signals.drain()
        if signals.suspended:
            signals.suspended = False
            suspend()
        elif 0 in ready and signals.cancel.first is None:
            return os.read(0, _ANSWER)
    raise SystemExit(128 + signals.cancel.first)
