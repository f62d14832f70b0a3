"""Claude Code (``claude --help``, https://code.claude.com/docs/en/headless).

``-p`` without a prompt reads it from standard input. In that mode nobody can be asked: what is not permitted
beforehand is refused, so that without ``--dangerously-skip-permissions`` it can neither edit nor commit.
``stream-json`` is only to be had with ``--verbose``.

As root it refuses to skip permissions, unless ``IS_SANDBOX=1`` says that it can do no harm outside of a
sandbox. That is for us to say in a container, and nowhere else: elsewhere it refuses, and tells why.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "claude",
    ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
    "npm install -g @anthropic-ai/claude-code",
    output="claude",
    contained_root={"IS_SANDBOX": "1"},
    budget=("--max-budget-usd", "{left}"),
    resume=("--resume", "{session}"),
)
