"""Worktrees for other programs; each bears our mark."""
