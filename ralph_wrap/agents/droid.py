"""Factory's Droid (``droid exec --help``, https://docs.factory.ai/cli/droid-exec/overview, November 2026).

Without a prompt argument it reads the prompt from standard input. By default it can only read;
``--skip-permissions-unsafe`` permits everything.

In a sandbox it keeps its login and its sessions. Settings, hooks, plugins and droids are executed by other
runs, so it cannot change these.

Its login is a variable, or a file that ``/login`` writes where the system has no keyring.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "droid",
    ("droid", "exec", "--output-format", "stream-json", "--skip-permissions-unsafe"),
    "npm install -g droid",
    output="droid",
    resume=("--session-id", "{session}"),
    homes=(
        AgentHome(
            ".factory",
            kept=("auth.v2.file", "auth.v2.key", "sessions/"),
            fresh=("logs", "cache", "telemetry", "certs"),
        ),
    ),
    login=AgentLogin(
        variables=("FACTORY_API_KEY",),
        files=(".factory/auth.v2.file", ".factory/auth.encrypted"),
        command="droid, and there /login",
        words=("Error: Authentication failed",),
    ),
)
