"""Gemini CLI (``gemini --help``, https://geminicli.com/docs/cli/headless).

If its standard input is no terminal, it reads the prompt from there. ``--yolo`` permits every tool, but only
in a trusted directory. With ``--skip-trust`` it trusts a new worktree.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "gemini",
    ("gemini", "--yolo", "--skip-trust", "--output-format", "stream-json"),
    "npm install -g @google/gemini-cli",
    output="gemini",
    resume=("--resume", "{session}"),
)
