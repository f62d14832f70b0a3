"""aider, from its documentation alone (https://aider.chat/docs/scripting.html).

It does what is in the file, commits by itself, and ends. What it prints is text, in which the promise is
looked for as in that of any command.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "aider",
    ("aider", "--yes-always", "--no-stream", "--no-pretty", "--message-file", "{prompt_file}"),
    "python -m pip install aider-install && aider-install",
    prompt="file",
)
