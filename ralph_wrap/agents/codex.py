"""Codex (``codex exec --help``, https://developers.openai.com/codex/noninteractive).

Without a prompt argument it reads the prompt from standard input. In this mode it asks no questions, but
works in its own sandbox. The default sandbox cannot write files. The sandbox that can write files keeps
``.git`` read-only, so Codex could not commit. One more option lets it work outside a git repository.

In a sandbox it keeps its login and its sessions. ``config.toml`` names commands, so it cannot change it.

Without a login it sends its requests without one, and the service answers with 401. It does not read
``OPENAI_API_KEY``; ``codex login --with-api-key`` keeps such a key in ``auth.json``
(https://developers.openai.com/codex/auth).
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "codex",
    ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    "npm install -g @openai/codex",
    output="codex",
    resume=("resume", "{session}"),
    homes=(
        AgentHome(
            ".codex",
            "CODEX_HOME",
            kept=("auth.json", "sessions/", "history.jsonl"),
            fresh=("log", "tmp"),
        ),
    ),
    login=AgentLogin(
        variables=("CODEX_API_KEY", "CODEX_ACCESS_TOKEN"),
        files=(".codex/auth.json",),
        command="codex login --device-auth",
        words=(
            "Your (access token|authentication session) could not be refreshed",
            "Missing environment variable: ",  # the key of a provider in its configuration
        ),
    ),
)
