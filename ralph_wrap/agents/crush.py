"""Crush, known from its documentation and its source only.

https://github.com/charmbracelet/crush/blob/main/internal/cmd/run.go (August 2026)

``crush run`` reads the prompt from standard input, permits every tool in its session, and prints its answer
as text. ``--quiet`` prints no animation. It continues an earlier session by ``--session SESSION``. It keeps
its sessions in ``.crush`` of the working directory, which git ignores.

In a sandbox it keeps nothing in the user's home.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "crush",
    ("crush", "run", "--quiet"),
    "npm install -g @charmland/crush",
    resume=("--session", "{session}"),
    homes=(AgentHome(".config/crush"), AgentHome(".local/share/crush")),
    login=AgentLogin(
        variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        files=(".local/share/crush/crush.json", ".config/crush/crush.json"),
        command="crush login",
    ),
)
