"""Worktrees for Python programs: as a context in which agents work, or by single functions."""
