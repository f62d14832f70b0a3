"""Claude Code (``claude --help``: -p, --print reads the prompt from standard input)."""

from ralph_wrap.agents.agent import Agent

CLAUDE = Agent("claude", ("claude", "-p"), "npm install -g @anthropic-ai/claude-code")
