"""opencode (``opencode run --help``, https://opencode.ai/docs/cli).

It appends standard input to the prompt argument, which may be empty. ``--auto`` permits every action that its
configuration does not forbid.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "opencode",
    ("opencode", "run", "--format", "json", "--auto"),
    "npm install -g opencode-ai",
    output="opencode",
    resume=("--session", "{session}"),
)
