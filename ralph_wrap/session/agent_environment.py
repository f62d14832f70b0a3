"""The environment of the agent in a session."""

from __future__ import annotations

import os

from ralph_wrap.git import environment_with_config, environment_without_repository
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state.ports import port_for
from ralph_wrap.state.project import registries
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.log import get_logger
from ralph_wrap.worktree.layout import environment_config

log = get_logger()

# Without its .git file, git would find the project's own checkout above the worktree, and commit there.
_CEILING = "GIT_CEILING_DIRECTORIES"
_HOOKS_OFF = ("core.hooksPath", "/dev/null")
_HOOKS_OFF_SINCE = (2, 31)  # GIT_CONFIG_COUNT: configuration for one process tree, without writing a file


def agent_environment(context: SessionContext, workspace: Workspace, port: int) -> dict[str, str]:
    """Return the environment of the agent, and warn if its hooks cannot be switched off.

    Arguments:
        port: the first of its ports.

    """
    repository = context.project.repository
    environ = environment_without_repository(context.project.environ) | {
        "RALPH_AGENT_ID": context.record.id,
        "RALPH_SESSION_ID": context.record.session,
        "RALPH_BRANCH": workspace.branch or "",
        "RALPH_WORKSPACE": os.fspath(workspace.path),
        "RALPH_PROJECT": os.fspath(context.project.main),
        "RALPH_PORT": str(port),
    }
    if workspace.tree is not None:
        above = [os.fspath(workspace.path.parent), *filter(None, [environ.get(_CEILING)])]
        environ[_CEILING] = os.pathsep.join(above)
    if workspace.tree is not None and not workspace.tree.clone:  # a clone has a configuration of its own
        for key, value in environment_config(workspace.tree.registration):
            environ = environment_with_config(environ, key, value)
    if context.settings.hooks or repository is None:
        return environ
    if repository.git_version < _HOOKS_OFF_SINCE:
        log.warning(
            "hooks.not_disabled",
            "git before 2.31 cannot switch hooks off for one process: they run in the agent's commits",
            "install git 2.31 or newer, or --hooks on",
        )
        return environ
    return environment_with_config(environ, *_HOOKS_OFF)


def port_of(context: SessionContext) -> int:
    """Return the first of the ports for servers of the agent; none of another session now."""
    return port_for(context.record.id, _taken_ports(context))


def _taken_ports(context: SessionContext) -> set[int]:
    """Return the first ports of the other sessions that are not finished."""
    for registry in registries(context.project):
        if registry.has(context.record.id):
            others = [record for record in registry.unfinished() if record.id != context.record.id]
            return {record.port for record in others if isinstance(record, SessionRecord)}
    return set()
