"""Cursor's agent, known from its documentation only.

https://cursor.com/docs/cli/headless, https://cursor.com/docs/cli/reference/parameters (November 2026)

The installer names it ``agent``, too. With ``--print`` it asks no questions: it rejects every action that has
no permission. ``--force`` permits all of them. In the format ``text`` it prints its final answer only. It
continues an earlier chat by ``--resume CHAT``, whose name only its other formats tell.

In a sandbox it keeps nothing in the user's home.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "cursor-agent",
    ("cursor-agent", "--print", "--force", "--output-format", "text", "{prompt}"),
    "curl https://cursor.com/install -fsS | bash",
    prompt="argument",
    resume=("--resume", "{session}"),
    homes=(AgentHome(".cursor"), AgentHome(".config/cursor")),
    login=AgentLogin(
        variables=("CURSOR_API_KEY",),
        files=(".config/cursor/auth.json",),
        command="cursor-agent login",
    ),
)
