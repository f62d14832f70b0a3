"""Worktrees for other programs, and for whoever enters one: thin faces over ``worktree``."""
