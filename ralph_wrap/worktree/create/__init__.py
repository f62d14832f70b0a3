"""Make a worktree in one transaction."""
