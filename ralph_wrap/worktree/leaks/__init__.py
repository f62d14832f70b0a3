"""Find out what changes outside the worktree while an agent works."""
