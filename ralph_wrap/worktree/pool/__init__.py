"""Warm worktrees, which are checked out in advance for later sessions."""
