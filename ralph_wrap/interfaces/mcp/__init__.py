"""The tools to enter and exit a worktree, for an agent that speaks the Model Context Protocol.

Importing ``serve`` needs the extra ``mcp``.
"""
