"""Check everything that can be checked before a session creates a branch or a file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.agents import look_up
from ralph_wrap.config import AgentSettings, IgnoreLocation, Isolation, SandboxMode, Settings
from ralph_wrap.config.repository_trust import require_direct
from ralph_wrap.errors import DamagedRepositoryError, GitError, NoCheckoutError, UntrustedError, UsageError
from ralph_wrap.git import (
    Repository,
    decode,
    decode_lines,
    is_branch_name,
    knows_committer,
    list_refs,
    object_kinds,
    pointer,
    require_short_name,
    resolve_commit,
    run_git,
)
from ralph_wrap.git.remote import list_remotes, push_addresses
from ralph_wrap.git.repository import require_new
from ralph_wrap.git.safe.filters import require_same_files
from ralph_wrap.session import plain_root
from ralph_wrap.session.remote import claiming
from ralph_wrap.session.sandbox import backend
from ralph_wrap.session.sandbox.backend import SandboxBackend
from ralph_wrap.state.ids import agent_ids_in
from ralph_wrap.state.project import CLONES, WORKTREES, Project, is_writable
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import privileges
from ralph_wrap.system.process import OWN_COMMAND
from ralph_wrap.system.text import plain, rename_command, shortened
from ralph_wrap.worktree.ignore import is_hidden
from ralph_wrap.worktree.layout import EVERYTHING, WorktreeLayout, check_layout, directories

_CONFIG_BY_ENVIRONMENT = (2, 31)  # GIT_CONFIG_COUNT
_HEADING = re.compile(r"^#{1,6}(?: +|$)| +#+$")  # CommonMark, *ATX headings*
LONGEST_AGENT = 4000
"""Columns of a command in a record; PID 1 reads each record, and takes none that is larger than 64 KiB."""

_LONGEST_TITLE = 200  # characters
_TITLE_IS_IN = 1 << 16  # bytes of a prompt file


class Preflight(NamedTuple):
    """The result of the checks.

    Attributes:
        base: the commit to start from; ``None`` if there is none.
        identity: environment variables that name a committer, if git has none.
        layout: the files of the repository that the worktree contains.
        hidden: git already ignores the directory of the worktrees.
        sandbox: what makes the agent's sandbox; ``None`` without a sandbox.

    """

    base: str | None
    identity: Mapping[str, str]
    layout: WorktreeLayout = EVERYTHING
    hidden: bool = False
    sandbox: SandboxBackend | None = None

    def for_session(self, project: Project, session: str) -> Project:
        """Return the project with a committer, and with its git marked as the session's own.

        Arguments:
            project: its environment has no committer yet.
            session: the session id.

        """
        env = {**project.git.env, **self.identity, OWN_COMMAND: session}
        return project._replace(
            environ={**project.environ, **self.identity}, git=project.git._replace(env=env)
        )


def look_first(settings: Settings, project: Project) -> Preflight:
    """Check everything that can be checked before the session creates a branch or a file.

    Raises:
        UsageError: a setting does not fit the repository, for example base, branch or remote.
        AgentError: the agent's command cannot be run.
        SandboxError: the sandbox that the settings want is not possible.
        UntrustedError: the repository belongs to another user, or names a filter without approval.
        DamagedRepositoryError: git cannot use the repository.

    """
    _check_gate(settings)
    _require_usable_repository(settings, project)
    if settings.sandbox is SandboxMode.OFF:
        return _look(settings, project)
    with backend.start_trial(settings, project) as trial:
        found = _look(settings, project)
        return found._replace(sandbox=backend.choose(settings, project, trial))


def _check_gate(settings: Settings) -> None:
    """Check what decides whether the work is done: before the agent works, not after.

    Raises:
        UsageError: there is no gate where something needs one, or one text says both done and blocked.

    """
    if "verify_each" in settings.replaced and settings.verify_each and not settings.verify:
        raise UsageError(
            "--verify-each: there is no command to run",
            'add --verify COMMAND, or write verify = "COMMAND" into .ralph/config.toml',
        )
    if settings.until.strip() and settings.until.strip() == settings.blocked.strip():
        raise UsageError(
            f"--until and --blocked are the same text: {settings.until.strip()}", "give another one"
        )
    if settings.merge_on_complete:
        _ = settings.landing_check


def _look(settings: Settings, project: Project) -> Preflight:
    if project.repository is None:
        look_up(settings.command, project.environ)
        return Preflight(None, {})
    look_up(settings.command, project.environ)
    makes_worktree = settings.isolation not in {Isolation.OFF, Isolation.CLONE}
    around = project.around_worktrees
    hidden = bool(
        makes_worktree and settings.ignore is not IgnoreLocation.OFF and around and is_hidden(*around)
    )
    base = project.repository.head
    _check_clone(settings, project.repository)
    if settings.branch is not None and not is_branch_name(project.git, settings.branch):
        raise UsageError(
            f"{settings.branch!r} cannot be the name of a branch", "see git help check-ref-format"
        )
    if settings.branch is not None:
        require_short_name(project.git, settings.branch)
    _require_room_for(settings, project)
    _check_remotes(settings, project)
    target = settings.merge_on_complete
    if target and f"refs/heads/{target}" not in list_refs(project.git, f"refs/heads/{target}"):
        raise UsageError(f"merge_on_complete: there is no branch {target!r}", "git branch --list")
    if settings.base not in {"head", "fresh"}:
        base = resolve_commit(project.git, settings.base)
        if base is None:
            raise UsageError(f"base {settings.base!r} names no commit", "git log --oneline --all")
    if base is None and settings.isolation is not Isolation.OFF:
        require_new(project.repository.checkout(project.git))
    layout = EVERYTHING
    if settings.isolation is not Isolation.OFF and base is not None:
        _require_same_files(settings, project, project.repository, base)
        layout = _planned_layout(settings, project, project.repository, base)
    return Preflight(base, committer(project), layout, hidden)


def _require_same_files(settings: Settings, project: Project, repository: Repository, base: str) -> None:
    """Check that the agent's git and ours see the same files in the worktree.

    Raises:
        UntrustedError: a filter that the user has not approved applies to a file.
        GitError: it cannot be found out.

    """
    commits = [base]
    if settings.resumes:  # its saved work is put into the worktree
        saved = f"refs/heads/ralph/{settings.resumes.rpartition('-')[2]}-wip"
        commits += list_refs(project.git, saved).values()
    require_same_files(project.git, repository, *commits)


def _require_room_for(settings: Settings, project: Project) -> None:
    """Check that no other branch is in the way of the one that the user named.

    Raises:
        UsageError: git keeps ``a`` as a file, and ``a/b`` below a directory of this name.

    """
    branch = settings.branch
    if branch is None or settings.isolation is Isolation.OFF:
        return
    parts = branch.split("/")
    parents = [f"refs/heads/{'/'.join(parts[:number])}" for number in range(1, len(parts))]
    found = [*list_refs(project.git, *parents)] if parents else []
    found = [ref for ref in found if ref in parents] + [*list_refs(project.git, f"refs/heads/{branch}/")]
    if found:
        name = found[0].removeprefix("refs/heads/")
        raise UsageError(
            f"--branch {branch}: branch {name} is in the way",
            f"name another branch, or: {rename_command(name, 'NEW-NAME')}",
        )


def _check_clone(settings: Settings, repository: Repository) -> None:
    """Refuse what works only in a worktree, if the session gets a clone.

    Raises:
        UsageError: one of these options was given.

    """
    if settings.isolation is not Isolation.CLONE:
        return
    named = settings.branch is not None and settings.branch != f"ralph/{settings.resumes.rpartition('-')[2]}"
    writing = {"branch": named, "remote": settings.remote}
    if not is_writable(repository) and (given := [name for name, value in writing.items() if value]):
        raise UsageError(
            f"{', '.join(given)}: not possible in a clone while the repository is read-only",
            "leave it out; then, on the host: ralph-wrap review",
        )


def _check_remotes(settings: Settings, project: Project) -> None:
    """Check the remotes that the session pushes to."""
    wanted = {"push": settings.push, "remote": settings.remote}
    for key, remote in wanted.items():
        if remote is None:
            continue
        if remote not in (names := list_remotes(project.git)):
            hint = f"there is {', '.join(names)}" if names else "there is none: git remote add NAME URL"
            raise UsageError(f"{key}: {remote!r} is not the name of a remote", hint)
        require_direct(project.git.safe, remote)
    if settings.push is None or settings.remote is None:
        return
    addresses = [set(push_addresses(project.git, remote)) for remote in (settings.push, settings.remote)]
    if not addresses[0].isdisjoint(addresses[1]):
        raise UsageError(
            "push and remote lead to the same repository", "remove push: remote pushes the branch, too"
        )


def _planned_layout(
    settings: Settings, project: Project, repository: Repository, base: str
) -> WorktreeLayout:
    """Return the layout of the session's worktree."""
    if settings.link and repository.git_version < _CONFIG_BY_ENVIRONMENT:
        raise UsageError(
            "git before 2.31 cannot be kept from adding linked directories", "install git 2.31 or newer"
        )
    fresh = settings.base == "fresh"
    return layout_of(settings.sparse, settings.link, project, base, fresh=fresh)


def layout_of(
    sparse: Sequence[str],
    links: tuple[str, ...],
    project: Project,
    base: str,
    *,
    fresh: bool = False,
) -> WorktreeLayout:
    """Return the layout of a worktree.

    Arguments:
        sparse: directories, or files in them, to check out; empty for all.
        links: directories to share with the project.
        base: the commit to start from.
        fresh: without *sparse*, check out only the files at the top level.

    Raises:
        UsageError: a directory does not exist, or is outside the project.

    """
    nothing = () if fresh else None
    if not sparse and not links:
        return WorktreeLayout(nothing)
    wanted = tuple(path.rstrip("/") for path in sparse)
    check_layout(WorktreeLayout(wanted, links), project.checkout)
    if tracked := sorted(object_kinds(project.git, base, [path.rstrip("/") for path in links])):
        raise UsageError(f"{tracked[0]!r} cannot be linked: the commit has it", "link what git ignores")
    if not wanted:
        return WorktreeLayout(nothing, links)
    kinds = object_kinds(project.git, base, wanted)
    if missing := [path for path in wanted if path not in kinds]:
        raise UsageError(
            f"{missing[0]!r} is not in the commit to start from", f"git ls-tree -r -d --name-only {base[:12]}"
        )
    files = {path for path, kind in kinds.items() if kind != "tree"}
    return WorktreeLayout(directories(wanted, files), links)


def title_of(settings: AgentSettings) -> str:
    """Return the title of a session: its name, else the first line of its prompt; empty if it has neither."""
    if name := plain(settings.name):
        return name[:_LONGEST_TITLE]
    lines = (_HEADING.sub("", plain(line)) for line in _beginning_of_prompt(settings).splitlines())
    return next((line[:_LONGEST_TITLE] for line in lines if any(map(str.isalnum, line))), "")


def _require_usable_repository(settings: Settings, project: Project) -> None:
    """Check that the user, and not an agent, has decided that a session works without a worktree."""
    if settings.isolation is Isolation.OFF:
        return
    if isinstance(project.obstacle, UntrustedError | DamagedRepositoryError | NoCheckoutError):
        raise project.obstacle
    if settings.isolation is Isolation.PREFER and (project.repository is None or not project.repository.head):
        plain_root.require_project(project)
    if project.repository is None:
        return
    for name in ("worktrees", "refs", "refs/heads", "logs"):
        path = project.repository.common_dir / name
        if os.path.lexists(path) and not path.is_dir():
            if name == "refs/heads" and _has_reftables(project):
                continue
            raise DamagedRepositoryError(
                f"{path} is no directory, so git can make no worktree",
                f"if you did not put it there: mv {shlex.quote(str(path))} {shlex.quote(f'{path}.damaged')}",
            )


def _has_reftables(project: Project) -> bool:
    """Return whether git keeps the refs in tables, and a file in the place of ``refs/heads``."""
    with contextlib.suppress(GitError):
        return decode_lines(run_git(project.git, "rev-parse", "--show-ref-format").stdout) == ["reftable"]
    return False


def _beginning_of_prompt(settings: AgentSettings) -> str:
    if settings.prompt_file is None:
        return settings.prompt or ""
    try:
        # A pipe could be read only once, and the agent needs its content.
        if not settings.prompt_file.is_file():
            return ""
        with settings.prompt_file.open("rb") as prompt:
            return decode(prompt.read(_TITLE_IS_IN))
    except OSError:  # the first iteration reports it
        return ""


def planned(
    record: SessionRecord, settings: Settings, project: Project, preflight: Preflight, agent: str
) -> SessionRecord:
    """Add the data to a record that ``sweep`` needs if the session is killed later.

    Arguments:
        record: a new record.
        preflight: the result of the checks.
        agent: name of the agent or command, for people.

    """
    record = record._replace(
        agent=shortened(agent, LONGEST_AGENT),
        title=title_of(settings),
        keep_worktree=settings.keep_worktree,
        on_dirty=settings.on_dirty.value,
        drop_empty=settings.drop_empty,
        background=settings.background,
        resumes=settings.resumes or None,
        worktree=settings.worktree_name or None,
        task=settings.task,
        workspace=os.fspath(project.checkout),
    )
    if settings.isolation is Isolation.OFF or project.repository is None or preflight.base is None:
        return record
    return record._replace(
        branch=settings.branch or f"ralph/{record.id}",
        branch_created=not settings.branch and not settings.resumes,  # no other session has this id
        base=preflight.base,
        workspace=os.fspath(project.root / _worktrees_of(settings) / record.worktree_name),
        file_mode=project.repository.file_mode,
        symlinks=project.repository.symlinks,
    )


def _worktrees_of(settings: Settings) -> Path:
    return CLONES if settings.isolation is Isolation.CLONE else WORKTREES


def committer(project: Project) -> Mapping[str, str]:
    """Return environment variables that name a committer, if git has none."""
    if project.repository is None:
        return {}
    # The environment overrides the configuration, even with an empty name, which git refuses.
    given = {name for name in project.git.env if name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))}
    names = privileges.FALLBACK_IDENTITY.keys()
    named = all(
        any(map(str.isalnum, project.git.env[name])) if name in given else project.repository.names_committer
        for name in names
    )
    # Another variable, a date for example, may be wrong: then git itself must check them.
    known = (named and given <= names) or knows_committer(project.git)
    return {} if known else privileges.FALLBACK_IDENTITY


def taken_in(project: Project, remote: str | None) -> Callable[..., set[str]]:
    """Return what finds the agent ids that branches of the repository, or of a remote, have.

    Arguments:
        remote: name of the remote; ``None`` for none.

    """
    if remote is None:
        return lambda name="": taken_ids(project, name)
    taken_at = claiming.taken_at
    return lambda name="": taken_ids(project, name) | taken_at(project.git, remote, name)


def taken_ids(project: Project, agent_id: str = "") -> set[str]:
    """Return the agent ids in the names of branches and of other refs that a session has left.

    Arguments:
        agent_id: search for this id only, if git searches.

    """
    if project.repository is None:
        return set()
    names = pointer.names_below(project.repository.common_dir, "refs/heads/ralph", "refs/ralph")
    if names is not None:
        return agent_ids_in(names)
    patterns: tuple[str, ...] = ("refs/heads/ralph/", "refs/ralph/")
    if agent_id:
        patterns = (
            f"refs/heads/ralph/{agent_id}*",
            f"refs/ralph/*/{agent_id}*",
            f"refs/ralph/*/{agent_id}/*",
        )
    return agent_ids_in(run_git(project.git, "for-each-ref", "--format=%(refname)", *patterns).stdout)
