"""Decide what the agent of a session can reach: its workspace, its part of the repository, its own state."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from ralph_wrap import agents
from ralph_wrap.agents import Agent
from ralph_wrap.agents.definition import below_home
from ralph_wrap.config import Settings
from ralph_wrap.config.settings import AgentChoice
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.sandbox.backend import SandboxBackend
from ralph_wrap.session.sandbox.bubblewrap import Reach
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.worktree.model import LinkedWorktree

SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub"),
    *(
        ".config/op",
        ".config/rclone",
        ".config/containers",
        ".local/share/containers",
        ".oci",
        ".vault-token",
    ),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".pypirc", ".terraform.d"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".Xauthority", ".password-store"),
    *(".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird"),
)
"""What the agent finds empty below the user's home: keys, passwords, and what logs a user in."""

_NAMING = ("GNUPGHOME", "DOCKER_CONFIG", "KUBECONFIG", "NETRC", "GH_CONFIG_DIR")
"""Variables that name another place for what is hidden."""

DROPPED = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
    *("DOCKER_HOST", "CONTAINER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMUX", "STY", "TMPDIR"),
)
"""Variables of the agent that lead to programs outside, or to a directory that it does not have."""

_SHARED = ("config", "config.worktree", "hooks", "info", "modules", "worktrees", "packed-refs.lock")
"""Entries of a repository that only the user changes; the agent of a plain project root reads them."""

_UNIX = ("unix://", "unix:path=", "unix:")


def reach_of(context: SessionContext, workspace: Workspace, backend: SandboxBackend) -> Reach:
    """Return what the agent of a session can reach; the sandbox says how much of it is enforced.

    Raises:
        OSError: a directory that the agent needs cannot be created.

    """
    environ = context.project.environ
    home = Path(environ.get("HOME") or "/").resolve()
    settings = context.settings
    repository = context.project.repository
    if workspace.tree is not None:
        writable, read_only = _of_worktree(workspace.tree)
    else:
        writable, read_only = _of_plain_root(context, workspace)
    fresh, entries, copied = _of_agents(settings, home, environ)
    visible = [home, context.project.root, context.project.checkout, *_programs(context)]
    if repository is not None:
        visible.append(repository.common_dir)
    return Reach(
        visible=tuple(sorted({path.resolve() for path in visible if path.exists()})),
        hidden=tuple(sorted({*_secrets(home, environ), *_sockets(environ)})),
        writable=(*backend.writable, *_existing(writable)),
        read_only=tuple(_existing(read_only)),
        fresh=fresh,
        entries=entries,
        copied=copied,
        network=backend.network,
    )


def _of_worktree(tree: LinkedWorktree) -> tuple[list[Path], list[Path]]:
    """Return what the agent writes with git in a worktree, and what stays as it is.

    A clone has a repository of its own, so the agent writes nothing of the project's. Its replica is ours.
    """
    if tree.clone:
        return [tree.path], [tree.path / ".git" / "objects" / "info"]
    common, registration = tree.common_dir, tree.registration
    branches = Path("refs/heads", tree.branch).parent
    (common / branches).mkdir(parents=True, exist_ok=True)  # it is not there if git has packed the branch
    if (common / "logs").is_dir():
        (common / "logs" / branches).mkdir(parents=True, exist_ok=True)
    writable = [tree.path, common / "objects", common / branches, common / "logs" / branches, registration]
    ours = [path for path in registration.iterdir() if path.name.startswith("ralph-wrap-")]
    names = ("commondir", "gitdir", "locked", "config.worktree")
    return writable, [
        *(registration / name for name in names),
        *ours,
        tree.path / ".git",
        common / "objects" / "info",
    ]


def _of_plain_root(context: SessionContext, workspace: Workspace) -> tuple[list[Path], list[Path]]:
    """Return the same for the plain project root, whose agent works on the branches of the user."""
    repository = context.project.repository
    records = [context.project.root / ".ralph", workspace.path / ".ralph"]
    if repository is None:
        return [workspace.path], records
    common = repository.common_dir
    shared = [common / name for name in _SHARED]
    return [workspace.path, common], [*records, *shared]


def _of_agents(
    settings: Settings, home: Path, environ: Mapping[str, str]
) -> tuple[tuple[Path, ...], tuple[tuple[Path, bool], ...], tuple[Path, ...]]:
    """Return the fields *fresh*, *entries* and *copied* for all agents of the session."""
    first = AgentChoice(settings.agent, settings.command, settings.invocation)
    reaches = [
        _of_agent(agents.of_command(one.command, one.agent), home, {**environ, **dict(one.invocation.env)})
        for one in (first, *settings.others)
    ]
    fresh, entries, copied = zip(*reaches, strict=True)
    return tuple(chain(*fresh)), tuple(chain(*entries)), tuple(chain(*copied))


def _of_agent(
    agent: Agent | None, home: Path, environ: Mapping[str, str]
) -> tuple[tuple[Path, ...], tuple[tuple[Path, bool], ...], tuple[Path, ...]]:
    """Return the fields *fresh*, *entries* and *copied* for the agent's own directories."""
    fresh: list[Path] = []
    entries: list[tuple[Path, bool]] = []
    for own in agent.homes if agent else ():
        top = own.directory(home, environ).resolve()
        for name in ("", *own.kept):
            if not name or name.endswith("/"):
                (top / name).mkdir(parents=True, exist_ok=True)
        fresh += [top, *(top / name for name in own.fresh)]
        kept = {name.rstrip("/") for name in own.kept}
        entries += [
            (entry, entry.name in kept)
            for entry in sorted(top.iterdir())
            if entry.exists() and not entry.is_symlink() and entry.name not in own.fresh
        ]
    copied = [path for name in (agent.copied if agent else ()) if (path := (home / name).resolve()).is_file()]
    return tuple(fresh), tuple(entries), tuple(copied)


def _secrets(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    found = [path for name in SECRETS for path in (home / name, below_home(name, home, environ))]
    found += [Path(named) for variable in _NAMING if (named := environ.get(variable))]
    for path in found:
        if path.is_absolute() and path.exists():
            yield path.resolve()


def _sockets(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the unix sockets that variables name: agents with keys, engines of containers, buses."""
    for value in environ.values():
        prefix = next((prefix for prefix in _UNIX if value.startswith(prefix)), "")
        path = Path(value.removeprefix(prefix).partition(",")[0])
        if path.is_absolute() and _is_socket(path):
            yield path.resolve()


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except (OSError, ValueError):  # the value is no path
        return False


def _programs(context: SessionContext) -> Iterator[Path]:
    """Yield the files that start the agent: they can be in a directory that the sandbox empties."""
    yield Path(sys.base_prefix)
    path = context.project.environ.get("PATH", os.defpath)
    if found := shutil.which(context.settings.command[0], path=path):
        yield Path(found)


def _existing(paths: list[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if path.exists() and (resolved := path.resolve()) not in seen:
            seen.add(resolved)
            yield resolved
