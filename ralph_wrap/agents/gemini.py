"""Gemini CLI (``gemini --help``, https://geminicli.com/docs/cli/headless).

If its standard input is no terminal, it reads the prompt from there. ``--yolo`` permits every tool, but only
in a trusted directory. With ``--skip-trust`` it trusts a new worktree.

In a sandbox it keeps its login and its chats. ``settings.json`` names commands, so it cannot change it.
"""

from ralph_wrap.agents.definition import Agent, AgentHome

AGENT = Agent(
    "gemini",
    ("gemini", "--yolo", "--skip-trust", "--output-format", "stream-json"),
    "npm install -g @google/gemini-cli",
    output="gemini",
    resume=("--resume", "{session}"),
    homes=(AgentHome(".gemini", kept=("oauth_creds.json", "google_accounts.json", "tmp/")),),
)
