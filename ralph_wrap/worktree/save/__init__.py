"""Save everything that a worktree holds."""
