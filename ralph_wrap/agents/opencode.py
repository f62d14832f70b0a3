"""opencode (``opencode run --help``, https://opencode.ai/docs/cli).

It appends standard input to the prompt argument, which may be empty. ``--auto`` permits every action that its
configuration does not forbid.

In a sandbox it keeps its login and its sessions. It cannot change its configuration, and the plugins and
programs that it has downloaded: other runs of opencode execute them.

Each provider has its own variable (https://opencode.ai/docs/providers); only some are known here. Without a
login it uses the free models of opencode.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "opencode",
    ("opencode", "run", "--format", "json", "--auto"),
    "npm install -g opencode-ai",
    output="opencode",
    resume=("--session", "{session}"),
    homes=(
        AgentHome(".local/share/opencode", kept=("auth.json", "storage/", "snapshot/"), fresh=("log",)),
        AgentHome(".config/opencode"),
        AgentHome(".local/state/opencode"),
        AgentHome(".cache/opencode"),
    ),
    login=AgentLogin(
        variables=(
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "OPENAI_API_KEY",
            "OPENCODE_API_KEY",
            "OPENROUTER_API_KEY",
        ),
        files=(".local/share/opencode/auth.json",),
        command="opencode auth login",
    ),
)
