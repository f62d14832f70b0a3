"""aider, known from its documentation only (https://aider.chat/docs/scripting.html).

It follows the instructions in the file, commits by itself, and ends. Its output is text. The loop searches it
for the promise, as it does with any command.

In a sandbox it keeps nothing in the user's home.

Its login is the variable of a provider, or a key in one of two files (https://aider.chat/docs/config/api-keys.html).
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "aider",
    ("aider", "--yes-always", "--no-stream", "--no-pretty", "--message-file", "{prompt_file}"),
    "python -m pip install aider-install && aider-install",
    prompt="file",
    homes=(AgentHome(".aider"),),
    login=AgentLogin(
        variables=(
            "ANTHROPIC_API_KEY",
            "DEEPSEEK_API_KEY",
            "GEMINI_API_KEY",
            "OPENAI_API_KEY",
            "OPENROUTER_API_KEY",
        ),
        files=(".aider.conf.yml", ".env"),
        command="export OPENAI_API_KEY=…",
    ),
)
