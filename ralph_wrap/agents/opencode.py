"""opencode (``opencode run --help``, https://opencode.ai/docs/cli).

It adds what is on standard input to the prompt, which may be empty. ``--auto`` permits what its configuration
does not forbid.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "opencode",
    ("opencode", "run", "--format", "json", "--auto"),
    "npm install -g opencode-ai",
    output="opencode",
    resume=("--session", "{session}"),
)
