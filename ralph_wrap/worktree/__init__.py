"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.
"""
