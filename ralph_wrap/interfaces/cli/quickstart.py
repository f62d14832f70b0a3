"""``ralph-wrap quickstart``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap import agents
from ralph_wrap.commands import quickstart as use_case
from ralph_wrap.commands.doctor import examine
from ralph_wrap.commands.quickstart import FirstFiles
from ralph_wrap.commands.quickstart.templates import ABOUT_THE_PROMPT
from ralph_wrap.config import PROMPT
from ralph_wrap.errors import AgentNotFoundError, RalphError, UsageError
from ralph_wrap.interfaces.cli import doctor
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, read_answer
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory, complete_agent
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import located, location

_UNCHANGED = "nothing was written"


def quickstart(
    project: Directory = Path(),
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="The agent.",
            autocompletion=complete_agent,
            show_default=False,
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions.")] = False,
) -> None:
    """Set up a project: choose an agent, write PROMPT.md and .ralph/config.toml, and check everything.

    Files that exist stay unchanged. At the end it prints the command to type next.
    """
    with boundary("quickstart", json=False, project=project):
        asks = not yes and can_ask()
        if not asks and not (agent and yes):
            raise UsageError(
                "--yes asks nothing, so name the agent"
                if yes
                else "quickstart asks questions, and this is not a terminal",
                f"ralph-wrap quickstart --agent {agent or 'claude'} --yes",
            )
        environ = become_owner(project)
        found = find_project(project, environ)
        name = agent or _chosen(environ)
        use_case.check_name(found, name)
        if asks and (paths := use_case.missing(found)):
            _confirm(f"Write {', '.join(map(str, paths))}? [Y/n] ")
        first = use_case.write(found, name)
        typer.echo("\n".join(_listed(first)))
        checks, problem = examine(project, environ)
        failing = [check for check in checks if not check.ok]
        typer.echo("\n".join(["", *(doctor.shown(check, colour=False) for check in failing)]))
        typer.echo(f"ralph-wrap doctor: {doctor.counted(checks)}")
        if problem is not None:
            typer.echo("\nFirst correct what FAIL names: the line fix shows how.")
        typer.echo("\n".join(["", *_next(first, name, found, located_at=location(project))]))
        if problem is not None:
            raise SystemExit(problem.exit_code)


def _chosen(environ: Mapping[str, str]) -> str:
    """Return the agent that the user chooses among the installed ones.

    Raises:
        AgentNotFoundError: no known agent is installed.

    """
    installed = agents.installed(environ)
    if not installed:
        raise AgentNotFoundError(
            f"none of the known agents is installed: {', '.join(agents.NAMES)}",
            Commands.of(
                *(agents.known(name).install for name in agents.OFFERED),
                "any other program can be the agent: ralph-wrap run -- ./agent.sh",
            ),
        )
    rows = ["Installed agents:", *(f"  {name}  {path}" for name, path in installed.items())]
    first = next(iter(installed))
    while True:
        name = _answer(rows, f"The agent for this project [{first}]: ") or first
        if name in installed:
            return name
        rows = []


def _confirm(question: str) -> None:
    if _answer([], question).lower() not in {"", "y", "yes"}:
        raise RalphError(_UNCHANGED)


def _answer(rows: Sequence[str], question: str) -> str:
    """Return the line that the user types, without white space around it.

    Raises:
        RalphError: the terminal is at its end.

    """
    typed = read_answer(rows, question, None)
    if not typed:
        raise RalphError(_UNCHANGED)
    return typed.decode(errors="replace").strip()


def _listed(first: FirstFiles) -> Iterator[str]:
    yield from (f"wrote  {path}" for path in first.written)
    yield from (f"kept   {path}, which exists" for path in first.kept)


def _next(first: FirstFiles, agent: str, project: Project, *, located_at: str) -> Iterator[str]:
    command = located(shlex.join(["ralph-wrap", "run", *first.options]), located_at)
    if agent in agents.NAMES and agent not in agents.installed(project.environ):
        command = f"{agents.known(agent).install} && {command}"
    if PROMPT in first.written:
        yield from (
            f"Write your task into {PROMPT}:",
            *(f"  {line}" for line in ABOUT_THE_PROMPT),
            "Then type:",
        )
    else:
        yield "Type next:"
    yield from ("", f"  {command}")
