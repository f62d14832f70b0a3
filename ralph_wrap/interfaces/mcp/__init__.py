"""The tools to enter and exit a worktree, for an agent that uses the Model Context Protocol.

Importing ``serve`` needs the extra ``mcp``.
"""
