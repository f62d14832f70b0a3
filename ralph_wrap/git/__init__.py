"""Git's command line as typed functions: no policy, no printing, no cache.

Every call scrubs the environment, runs without hooks, fsmonitor, pager and prompts, and speaks machine
formats only. Paths are bytes inside git's answers and become ``str`` with ``surrogateescape``.
"""

from ralph_wrap.git.command import Git, environment, finish, lines, run, run_again, start, text, with_config
from ralph_wrap.git.objects import (
    agent_ids,
    commit_tree,
    count_commits,
    create_ref,
    delete_ref,
    existing_commits,
    is_branch_name,
    knows_committer,
    missing_objects,
    move_ref,
    parents,
    refs,
    resolve_commit,
    tree_of,
    write_tree,
)
from ralph_wrap.git.repository import (
    ABSOLUTE_POINTERS,
    OLDEST,
    Repository,
    file_system_config,
    is_ignored,
    is_registered,
    locate,
    parse_version,
    worktree_holding,
)
from ralph_wrap.git.status import Status, add, add_all, parse_status, start_status

__all__ = [
    "ABSOLUTE_POINTERS",
    "OLDEST",
    "Git",
    "Repository",
    "Status",
    "add",
    "add_all",
    "agent_ids",
    "commit_tree",
    "count_commits",
    "create_ref",
    "delete_ref",
    "environment",
    "existing_commits",
    "file_system_config",
    "finish",
    "is_branch_name",
    "is_ignored",
    "is_registered",
    "knows_committer",
    "lines",
    "locate",
    "missing_objects",
    "move_ref",
    "parents",
    "parse_status",
    "parse_version",
    "refs",
    "resolve_commit",
    "run",
    "run_again",
    "start",
    "start_status",
    "text",
    "tree_of",
    "with_config",
    "worktree_holding",
    "write_tree",
]
