"""Run coding agents in a loop, each in its own git worktree, and never lose their work.

Each public name is loaded at its first use. Python runs this module before ``__main__``, which sets a handler
first: until then, Ctrl-C prints a traceback.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.errors import RalphError
    from ralph_wrap.git import WorktreeInfo
    from ralph_wrap.interfaces.api.agent import AgentResult, run_agent
    from ralph_wrap.interfaces.api.functions import (
        add_worktree,
        branch_exists,
        list_worktrees,
        remove_worktree,
        worktree_exists,
    )
    from ralph_wrap.interfaces.api.worktree import Worktree, current_worktree
    from ralph_wrap.session.session import Session
    from ralph_wrap.session.workspace import Workspace
    from ralph_wrap.state.report import SessionReport

__all__ = [
    "AgentResult",
    "RalphError",
    "Session",
    "SessionReport",
    "Settings",
    "Workspace",
    "Worktree",
    "WorktreeInfo",
    "add_worktree",
    "branch_exists",
    "current_worktree",
    "list_worktrees",
    "remove_worktree",
    "run_agent",
    "worktree_exists",
]

_HOMES = {
    "AgentResult": "ralph_wrap.interfaces.api.agent",
    "RalphError": "ralph_wrap.errors",
    "Session": "ralph_wrap.session.session",
    "SessionReport": "ralph_wrap.state.report",
    "Settings": "ralph_wrap.config",
    "Workspace": "ralph_wrap.session.workspace",
    "Worktree": "ralph_wrap.interfaces.api.worktree",
    "WorktreeInfo": "ralph_wrap.git",
    "add_worktree": "ralph_wrap.interfaces.api.functions",
    "branch_exists": "ralph_wrap.interfaces.api.functions",
    "current_worktree": "ralph_wrap.interfaces.api.worktree",
    "list_worktrees": "ralph_wrap.interfaces.api.functions",
    "remove_worktree": "ralph_wrap.interfaces.api.functions",
    "run_agent": "ralph_wrap.interfaces.api.agent",
    "worktree_exists": "ralph_wrap.interfaces.api.functions",
}


if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name of the package

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if (encoding := sys.getfilesystemencoding()) != "utf-8":
            raise ImportError(
                f"in this locale Python takes the names of files for {encoding}, and git writes UTF-8:"
                " start Python with -X utf8 (PEP 540)"
            )
        return getattr(import_module(_HOMES[name]), name)
