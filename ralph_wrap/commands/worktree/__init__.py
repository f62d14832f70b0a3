"""The commands for worktrees of other programs and agents, as thin layers over ``worktree``."""
