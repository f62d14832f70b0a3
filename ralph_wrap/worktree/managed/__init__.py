"""Worktrees for other programs; each has our mark."""
