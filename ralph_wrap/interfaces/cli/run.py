"""``ralph-wrap run``."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ralph_wrap import config

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = "N"
_TIME = "DURATION"

Directory = Annotated[
    Path, typer.Option("--project", "-C", metavar="DIR", envvar="RALPH_WRAP_PROJECT", help="The project.")
]


def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[--] COMMAND…", help="The agent, if it has no known name.")
    ] = None,
    project: Directory = Path(),
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="aider, claude, codex, gemini, opencode, or a configured one.",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="What each iteration is given on stdin."),
    ] = None,
    prompt_file: Annotated[
        str | None,
        typer.Option(
            "--prompt-file",
            "-f",
            metavar="FILE",
            help="The same, read anew each time. (default: PROMPT.md if there)",
        ),
    ] = None,
    max_iterations: Annotated[
        str | None,
        typer.Option(
            "--max-iterations", "-n", metavar=_NUMBER, help="End after N; 0: no limit. (default: 100)"
        ),
    ] = None,
    max_failures: Annotated[
        str | None,
        typer.Option(metavar=_NUMBER, help="Give up after N failing iterations in a row. (default: 5)"),
    ] = None,
    max_stalls: Annotated[
        str | None,
        typer.Option(
            metavar=_NUMBER, help="Give up after N iterations in a row that changed nothing. (default: 5)"
        ),
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar=_TIME, help="End the loop after this (90s, 15m, 2h).")
    ] = None,
    max_tokens: Annotated[
        str | None,
        typer.Option(metavar=_NUMBER, help="End after the agent has reported N tokens; 0: no limit."),
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option(metavar="USD", help="End after it has reported this cost; 0: no limit.")
    ] = None,
    iteration_timeout: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Cut an iteration short after this.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Cut an iteration short after this time without output.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar=_TIME, help="Wait between iterations.")] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar=_TIME, help="Between asking the agent to end and killing it. (default: 5s)"),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A line of the agent's answer that ends the loop. (default: <promise>COMPLETE</promise>)",
        ),
    ] = None,
    preamble: Annotated[
        str | None,
        typer.Option(
            metavar="off|on", help="Tell the agent where it works, before the prompt. (default: off)"
        ),
    ] = None,
    raw: Annotated[
        bool | None, typer.Option("--raw", help="Print the agent's machine-readable stream as it comes.")
    ] = None,
    on_leak: Annotated[
        str | None,
        typer.Option(
            metavar="report|stop",
            help="When an iteration changed something outside the worktree. (default: report)",
        ),
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(metavar="prefer|require|off", help="Whether to work in a worktree. (default: prefer)"),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Where the branch starts: head, any revision, or fresh (head, near-empty). (default: head)",
        ),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make or continue this branch. (default: ralph/<id>)")
    ] = None,
    sparse: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Check out this directory only; may be given several times."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Share this directory by symlink; may be given several times."),
    ] = None,
    hooks: Annotated[
        str | None,
        typer.Option(metavar="off|on", help="Run git hooks in the agent's commits. (default: off)"),
    ] = None,
    on_dirty: Annotated[
        str | None,
        typer.Option(metavar="wip|keep", help="Save uncommitted work, or leave the worktree. (default: wip)"),
    ] = None,
    keep_worktree: Annotated[bool | None, typer.Option("--keep-worktree", help="Leave the worktree.")] = None,
    drop_empty: Annotated[
        bool | None, typer.Option("--drop-empty", help="Delete the branch if nothing came of the session.")
    ] = None,
    ignore: Annotated[
        str | None,
        typer.Option(
            metavar="gitignore|exclude|off",
            help="Where the rule .ralph/worktrees/ goes. (default: gitignore)",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="FILE", help="A JSON job; - is standard input.")] = None,
) -> None:
    """Run an agent in a loop, in a worktree of its own.

    Every option is also RALPH_WRAP_<OPTION> in the environment and, but for project and job,
    a key in .ralph/config.toml.
    """
    given = locals()
    from ralph_wrap.interfaces.cli.start import start  # noqa: PLC0415 -- --help does not need it

    raise typer.Exit(start(context.obj, project, _flags(given), tuple(command or ())))


@wraps(run, assigned=("__annotations__",))  # the options
def spawn(project: Path, command: list[str] | None, **given: Any) -> None:
    """Run an agent in a loop in the background, and print the session's id.

    ralph-wrap logs -f ID follows it. Its worktree stays, with everything in it saved, until ralph-wrap rm ID.
    """
    from ralph_wrap.interfaces.cli.start import spawn as start_in_background  # noqa: PLC0415 -- as above

    raise typer.Exit(start_in_background(project, _flags(given), tuple(command or ())))


def _flags(given: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: _flag(value) for name, value in given.items() if name in {*config.OPTIONS, "job"}}


def _flag(value: Any) -> str | None:
    if isinstance(value, list):
        return "\n".join(value) if value else None
    return value if value is None or isinstance(value, str) else "on"
