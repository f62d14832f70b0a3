"""Gemini CLI (``gemini --help``, https://geminicli.com/docs/cli/headless).

If its standard input is no terminal, it reads the prompt from there. ``--yolo`` permits every tool, but only
in a trusted directory. With ``--skip-trust`` it trusts a new worktree.

In a sandbox it keeps its login and its chats. ``settings.json`` names commands, so it cannot change it.

Without a login it ends with status 41 (``FatalAuthenticationError``), and says why on stderr alone.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "gemini",
    ("gemini", "--yolo", "--skip-trust", "--output-format", "stream-json"),
    "npm install -g @google/gemini-cli",
    output="gemini",
    resume=("--resume", "{session}"),
    homes=(AgentHome(".gemini", kept=("oauth_creds.json", "google_accounts.json", "tmp/")),),
    login=AgentLogin(
        variables=(
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_ACCESS_TOKEN",
        ),
        files=(".gemini/oauth_creds.json", ".gemini/gemini-credentials.json", ".gemini/.env"),
        command="export GEMINI_API_KEY=…",
        statuses=(41,),
        words=("When using Gemini API, you must", "Invalid auth method selected", "Manual authorization is"),
    ),
)
