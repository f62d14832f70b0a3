"""``ralph-wrap worktree``: it prints JSON for every answer and every error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from ralph_wrap.commands.worktree.branch_name import slug
from ralph_wrap.commands.worktree.cleanup import cleanup as clean_up
from ralph_wrap.commands.worktree.create import create as create_worktree
from ralph_wrap.commands.worktree.status import list_all as list_worktrees
from ralph_wrap.commands.worktree.status import status as status_of
from ralph_wrap.config import load
from ralph_wrap.config.options import ROWS
from ralph_wrap.config.trust import require
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, refuse
from ralph_wrap.interfaces.cli.enter import enter, leave
from ralph_wrap.interfaces.cli.options import Directory, declared
from ralph_wrap.state.project import find_project
from ralph_wrap.system.signals import SignalHandlers

_TOOL = "worktree"
_KEEP = "--keep-branch"
_MEANT = {f"{_KEEP}=true": _KEEP, f"{_KEEP}=false": "--no-keep-branch"}


@contextmanager
def _in_json(context: Any = None) -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        words = ["ralph-wrap", _TOOL, getattr(context, "invoked_subcommand", None), "--help"]
        hint = f"see {' '.join(word for word in words if word)}"
        refuse(_TOOL, UsageError(" ".join(error.format_message().split()), hint))
        raise SystemExit(UsageError.exit_code) from None


class _Group(TyperGroup):
    def make_context(self, *arguments: Any, **named: Any) -> Any:
        with _in_json():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with _in_json(ctx):
            return super().invoke(ctx)


class _Cleanup(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read ``--keep-branch=false`` as documented; a switch of Typer takes no value."""
        end = [*args, "--"].index("--")
        return super().parse_args(ctx, [_MEANT.get(word, word) for word in args[:end]] + args[end:])


def create(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task; the branch is named after it.")],
    prefix: Annotated[
        str, typer.Option(metavar="P", help="The beginning of the branch's name.")
    ] = "quick-build",
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="The commit where the branch starts. (default: HEAD)")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The new directory. (default: .ralph/worktrees/<branch>)"),
    ] = None,
    hooks: Annotated[
        Literal["off", "on"], typer.Option(metavar="off|on", help="Run git hooks in the worktree.")
    ] = "off",
    sparse: Annotated[list[str] | None, declared(ROWS["sparse"])] = None,
    link: Annotated[list[str] | None, declared(ROWS["link"])] = None,
    directory: Directory = Path(),
) -> None:
    """Make a worktree on a new branch. Prints JSON."""
    with boundary(_TOOL, json=True), SignalHandlers() as signals:
        words = slug(task)  # before the change of user: only root may be able to read its tables
        environ = become_owner(directory)
        project = find_project(directory, environ)
        settings = load(directory, project.main, project.main, {}, environ, ())
        require(project.main, settings.stated, environ, lambda key: key in {"ignore", "copy"})
        created = create_worktree(
            project,
            words,
            prefix=prefix,
            base=base,
            path=path and _absolute(path),
            hooks=hooks == "on",
            sparse=sparse or (),
            links=link or (),
            ignore=settings.ignore,
            copy=settings.copy,
            cancel=signals.cancel,
        )
        answer(_TOOL, created._asdict())


def cleanup(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The worktree.")],
    keep_branch: Annotated[
        bool,
        typer.Option(
            f"{_KEEP}/--no-keep-branch", help="Keep the branch; --keep-branch=false deletes it, too."
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Remove it even if work would be lost.")] = False,
    project: Directory = Path(),
) -> None:
    """Remove a worktree that ralph-wrap made. Prints JSON."""
    with boundary(_TOOL, json=True), SignalHandlers():  # a signal does not interrupt a removal
        environ = become_owner(project)
        cleaned = clean_up(
            find_project(project, environ),
            _absolute(path),
            cwd=_absolute(Path()),
            keep_branch=keep_branch,
            force=force,
        )
        answer(_TOOL, cleaned._asdict())


def status(project: Directory = Path()) -> None:
    """Print whether the current directory is in a linked worktree, as JSON."""
    with boundary(_TOOL, json=True):
        environ = become_owner(project)
        answer(_TOOL, status_of(find_project(project, environ)))


def list_all(project: Directory = Path()) -> None:
    """List every worktree of the repository. Prints JSON."""
    with boundary(_TOOL, json=True):
        environ = become_owner(project)
        answer(_TOOL, [info._asdict() for info in list_worktrees(find_project(project, environ))])


def _absolute(path: Path) -> Path:
    """Return a typed path as an absolute one."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise UsageError("the current directory was deleted", "cd to an existing directory") from None


worktree = typer.Typer(cls=_Group, help="Manage worktrees for other programs; prints JSON.")
worktree.command()(create)
worktree.command(cls=_Cleanup)(cleanup)
worktree.command()(status)
worktree.command("list")(list_all)
worktree.command()(enter)
worktree.command("exit")(leave)
