"""``ralph-wrap resume``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ralph_wrap.agents import NAMES, of_command
from ralph_wrap.commands import fetch
from ralph_wrap.commands.resume import (
    Interrupted,
    ResumableSession,
    interrupted,
    interrupted_by_container_end,
    resumable,
)
from ralph_wrap.commands.sweep import sweep
from ralph_wrap.config import ROWS, Isolation, Settings, load, of_project, trust
from ralph_wrap.errors import ProblemsError, RalphError, RefusedError, UntrustedError, UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm, shown
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, open_project, remark
from ralph_wrap.interfaces.cli.options import AFTER_DASHES, IDS, Directory, flags, with_options
from ralph_wrap.interfaces.cli.start import spawn, start
from ralph_wrap.interfaces.init.child import AT_START
from ralph_wrap.loop.conversation import last_conversation
from ralph_wrap.session.preflight import LONGEST_AGENT
from ralph_wrap.state.project import Project, find_project_without_git
from ralph_wrap.state.session_start import START
from ralph_wrap.system.log import Commands, get_logger, on_stderr
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command as command_line
from ralph_wrap.system.text import shortened

log = get_logger()


@partial(with_options, without=("branch", "base"))  # it goes on where its branch is
def resume(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]…", help=IDS, autocompletion=completion.sessions),
    ] = None,
    *,
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Every session that was interrupted.")] = False,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="Say this to the agent first, once.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Go on even if the main branch has the work already.")
    ] = False,
    in_background: Annotated[
        bool, typer.Option("--background", help="Go on in the background, and print the id.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --remote: do not watch a session that runs elsewhere; you know that it is dead.",
        ),
    ] = False,
    after_restart: Annotated[bool, typer.Option("--after-restart", hidden=True)] = False,
    **typed: Any,
) -> None:
    """Go on where a session ended: same branch, same agent, and its saved work back in the worktree.

    One session runs in the foreground, as with run. Several run in the background, and this prints their ids.
    An option that you type replaces the one of the earlier session.
    """
    os.environ.pop(AT_START, None)  # it is for a sweep, and the agents must not get it
    messages = on_stderr(os.environ, log_format=typed.get("log_format"))
    with boundary("resume", json=False, project=project, messages=messages):
        _require_no_command(ids or [], context.meta[AFTER_DASHES], every=every)
        if bool(ids) == (every or after_restart):
            raise UsageError("either ids or --all must be given", "to list them: ralph-wrap ps --all")
        environ = become_owner(project)
        found = open_project(project, environ)
        load(project, found.root, Path.cwd(), flags(typed), environ, ())  # an error comes before any wait
        sweep(found)
        names, considered = [*dict.fromkeys(ids or [])], None
        if every or after_restart:
            considered = interrupted(found) if every else interrupted_by_container_end(found)
            _name_left_out(considered)
            if every and not any(considered):
                remark("no session was interrupted")
            names = considered.ids
        claims = _take_over(found, names, flags(typed)["remote"], at_once=take_over)
        chosen = _choose(
            found, names, skips=every or after_restart, again=again, remote=flags(typed)["remote"]
        )
    alone = len(ids or []) == 1 and not in_background
    statuses = [ProblemsError.exit_code] if considered and considered.unknown else []
    for session in chosen:
        try:
            claim = claims.get(session.record.id, "")
            with messages.in_use():
                statuses.append(_start(session, found, flags(typed), message, claim, alone=alone))
        except SystemExit as end:  # the error is printed, and the next one can go on; not after a signal
            if not isinstance(end.code, int) or end.code > RalphError.exit_code:
                raise
            statuses.append(end.code)
    raise typer.Exit(next((status for status in reversed(statuses) if status), 0))


def _require_no_command(ids: list[str], after_dashes: list[str], *, every: bool) -> None:
    """Check that no words after ``--`` were meant as the agent's command.

    Raises:
        UsageError: there are some beside ids or ``--all``.

    """
    number = len(after_dashes)
    if not number or ids[-number:] != after_dashes or not (every or len(ids) > number):
        return
    sessions = ids[:-number] or ["--all"]
    agent = of_command(after_dashes, "")
    raise UsageError(
        f"resume takes no command, and {command_line(*after_dashes)} is one:"
        " a session goes on with the agent that it began with",
        Commands.of(
            f"to go on with it: {command_line('ralph-wrap', 'resume', *sessions)}",
            "to go on with another agent, which --agent names: "
            + command_line("ralph-wrap", "resume", *sessions, "--agent", agent.name if agent else "NAME"),
        ),
    )


def _name_left_out(considered: Interrupted) -> None:
    """Say which sessions do not go on, and why."""
    for agent_id, (problem, hint) in considered.unknown.items():
        log.error(
            "session.not_resumed",
            f"how session {agent_id} ended is not known, so it does not go on: {problem}",
            hint,
        )
    for agent_id in considered.stuck:
        log.warning(
            "session.not_resumed",
            f"session {agent_id} made no progress after several restarts",
            f"to go on with it all the same: ralph-wrap resume {agent_id}",
        )
    for agent_id, hint in considered.blocked.items():
        log.warning("session.not_resumed", f"session {agent_id} waits for an answer", hint)


def _take_over(project: Project, names: list[str], remote: str | None, *, at_once: bool) -> dict[str, str]:
    """Fetch the sessions from the remote that the user typed, and return their claims by agent id."""
    if remote is None:
        if at_once:
            raise UsageError("--take-over needs --remote", "name the remote: --remote origin")
        return {}
    return dict(fetch.take_over(project, remote, name, at_once=at_once) for name in names)


def _choose(
    project: Project, names: list[str], *, again: bool, remote: str | None, skips: bool
) -> list[ResumableSession]:
    """Return the sessions to go on with.

    Arguments:
        remote: the remote that the user typed.
        skips: warn about a session that cannot go on, and leave it out.

    """
    main = of_project(project.main, project.environ, "main").main
    chosen = []
    for name in names:
        try:
            chosen.append(resumable(project, name, main, again=again, remote=remote))
        except RalphError as error:
            if not skips:
                raise
            log.warning("session.not_resumed", error.message, error.hint)
    return chosen


def _start(
    session: ResumableSession,
    project: Project,
    typed: Mapping[str, str | None],
    message: str,
    claim: str,
    *,
    alone: bool,
) -> int:
    """Start a session that goes on from another one, and return its exit status."""

    def change(settings: Settings) -> Settings:
        return continued_settings(settings, session, message)._replace(takes_over=claim)

    with boundary("resume", json=False):
        directory, options, command = _started(session, project, typed)
    background = session.record.background
    if alone and not background:
        with SignalHandlers() as signals:
            with boundary("resume", json=False):
                _require_word(session, project, signals)
            return start(signals, directory, options, command, change=change)
    with boundary("resume", json=False):
        _require_word(session, project, None)
    return spawn(directory, options, command, background=background, change=change)


def _started(
    session: ResumableSession, project: Project, typed: Mapping[str, str | None]
) -> tuple[Path, dict[str, str | None], tuple[str, ...]]:
    """Return directory, options and command of the earlier session; a typed option replaces its own."""
    directory, options, command = Path(), dict[str, str | None](), tuple[str, ...]()
    if session.started is not None:
        started = session.started.start
        directory, options, command = Path(started.directory), dict(started.options), started.command
    if unknown := ", ".join(sorted({*options} - {*ROWS})):
        agent_id = session.record.id
        raise UsageError(
            f"session {agent_id} was started with options that this version does not know: {unknown}",
            f"the version that started it knows them: ralph-wrap resume {agent_id}",
        )
    given = {name: text for name, text in typed.items() if text is not None}
    if session.started is None and "agent" not in given:
        _require_readable(session)
    if given.keys() & {"prompt", "prompt_file", "job"}:
        options = {name: text for name, text in options.items() if name not in {"prompt", "prompt_file"}}
    if file := options.get("prompt_file"):
        options["prompt_file"] = os.fspath(project.root / file)
    if "agent" in given:
        command = ()
        if given["agent"] != options.get("agent"):  # another agent does not understand them
            options = {name: text for name, text in options.items() if name not in {"model", "agent_arg"}}
    fresh = options.pop("base", None) == "fresh" and session.has_branch
    options.pop("branch", None)
    if session.base is not None:
        options["base"] = "fresh" if fresh else session.base
    started_in = project.root / directory
    if not _is_in_project(started_in, project):  # the user has removed that linked worktree, for example
        started_in = project.checkout
    return started_in, options | given, command


def _require_readable(session: ResumableSession) -> None:
    """Check that there is no file that says how a session was started, and cannot be read.

    Raises:
        RefusedError: there is one: what the user had typed would be left out.

    """
    if os.path.lexists(path := session.directory / START):
        agent = session.record.agent if session.record.agent in NAMES else None  # else it may be a command
        words = ("ralph-wrap", "resume", session.record.id, "--agent", agent or "NAME")
        raise RefusedError(
            f"how session {session.record.session} was started cannot be read: {path} is damaged",
            "to name its agent, and each option that it had: " + command_line(*words)
            if agent
            else f"to go on with an agent that --agent names, and with each option: {command_line(*words)}",
        )


def _is_in_project(directory: Path, project: Project) -> bool:
    if not directory.is_dir() or project.repository is None:
        return directory.is_dir()
    found = find_project_without_git(directory, project.environ)
    return found is not None and found.root == project.root


def continued_settings(settings: Settings, session: ResumableSession, message: str = "") -> Settings:
    """Return the settings of a session that goes on from another one."""
    record = session.record
    settings = settings._replace(resumes=record.session, worktree_name=record.worktree_name, message=message)
    if record.branch is not None:  # its saved work belongs in a worktree or a clone
        isolation = Isolation.CLONE if settings.isolation is Isolation.CLONE else Isolation.REQUIRE
        settings = settings._replace(branch=record.branch, isolation=isolation)
    if shortened(settings.agent or shlex.join(settings.command), LONGEST_AGENT) != record.agent:
        return settings
    log = session.directory / "output.log"
    return settings._replace(conversation=last_conversation(log, settings.invocation.output))


def _require_word(session: ResumableSession, project: Project, signals: SignalHandlers | None) -> None:
    """Check that the session itself has written how it was started; if not, ask on the terminal.

    Raises:
        UntrustedError: an agent may have written it, and the user does not approve it.

    """
    found = session.started
    if found is None or found.is_genuine or trust.implied(project.environ):
        return
    agent_id = session.record.id
    if not can_ask():
        raise UntrustedError(
            f"session {agent_id} was not started by you on this machine, and an agent can change its files",
            f"if you trust them: RALPH_TRUST=1 ralph-wrap resume {agent_id}",
        )
    begun = found.start
    said: dict[str, Any] = {"command": list(begun.command)} if begun.command else {}
    rows = [
        f"ralph-wrap: session {agent_id} was not started by you on this machine. It ran with:",
        *shown(said | {"directory": begun.directory} | dict(begun.options)),
    ]
    if not confirm(rows, "go on with this?", signals):
        raise UntrustedError(
            "the session was not resumed", f"to be asked again: ralph-wrap resume {agent_id}"
        )
