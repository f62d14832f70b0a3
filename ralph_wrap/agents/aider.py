"""aider, known from its documentation only (https://aider.chat/docs/scripting.html).

It follows the instructions in the file, commits by itself, and ends. Its output is text. The loop searches it
for the promise, as it does with any command.

In a sandbox it keeps nothing in the user's home.
"""

from ralph_wrap.agents.definition import Agent, AgentHome

AGENT = Agent(
    "aider",
    ("aider", "--yes-always", "--no-stream", "--no-pretty", "--message-file", "{prompt_file}"),
    "python -m pip install aider-install && aider-install",
    prompt="file",
    homes=(AgentHome(".aider"),),
)
