"""Detect changes outside the worktree while an agent works."""
