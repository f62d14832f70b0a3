"""Qwen Code (``qwen --help``).

https://qwenlm.github.io/qwen-code-docs/en/users/features/headless (November 2026)

It is a descendant of Gemini CLI. If its standard input is no terminal, it reads the prompt from there.
``--yolo`` permits every tool.

In a sandbox it keeps its login and its chats. ``settings.json`` names commands, so it cannot change it.

Its login is the key of a provider, or a file of an earlier version
(https://qwenlm.github.io/qwen-code-docs/en/users/configuration/auth).
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "qwen",
    ("qwen", "--yolo", "--output-format", "stream-json"),
    "npm install -g @qwen-code/qwen-code",
    output="qwen",
    resume=("--resume", "{session}"),
    homes=(AgentHome(".qwen", kept=("oauth_creds.json", "projects/"), fresh=("tmp", "debug")),),
    login=AgentLogin(
        variables=(
            "OPENAI_API_KEY",
            "DASHSCOPE_API_KEY",
            "BAILIAN_CODING_PLAN_API_KEY",
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
        ),
        files=(".qwen/oauth_creds.json", ".qwen/.env"),
        command="export OPENAI_API_KEY=…",
        words=("No auth type is selected", "Missing API key for "),
    ),
)
