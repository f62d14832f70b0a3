"""Warm worktrees, which wait for a session."""
