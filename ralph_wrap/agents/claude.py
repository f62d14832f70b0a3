"""Claude Code (``claude --help``, https://code.claude.com/docs/en/headless).

With ``-p`` and no prompt argument it reads the prompt from standard input. In this mode it cannot ask the
user, and refuses every action that has no permission yet. So without ``--dangerously-skip-permissions`` it
can neither edit nor commit. ``stream-json`` needs ``--verbose``.

A message of its stream has the output tokens of the message's beginning. Only ``--include-partial-messages``
adds the number at the end of a turn. It adds many lines, so only a session with a limit asks for it.

As root it refuses to skip permissions, unless ``IS_SANDBOX=1`` declares that it runs in a sandbox. ralph-wrap
sets this variable in a container only. Elsewhere Claude Code refuses to run as root, and prints why.

In a sandbox it keeps its login and its conversations. Other runs of Claude Code execute what stands in
``settings.json``, ``.claude.json`` (MCP servers), hooks and shell snapshots, so it cannot change these.

Its login is a variable, or a file that ``/login`` writes (https://code.claude.com/docs/en/authentication).
``claude setup-token`` prints a token for ``CLAUDE_CODE_OAUTH_TOKEN`` that lasts a year. Its stream says
``authentication_failed`` if it has none.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "claude",
    ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
    "npm install -g @anthropic-ai/claude-code",
    output="claude",
    contained_root={"IS_SANDBOX": "1"},
    budget=("--max-budget-usd", "{left}"),
    metering=("--include-partial-messages",),
    resume=("--resume", "{session}"),
    homes=(
        AgentHome(
            ".claude",
            "CLAUDE_CONFIG_DIR",
            kept=(".credentials.json", "projects/", "todos/", "tasks/", "history.jsonl"),
            fresh=(
                "shell-snapshots",
                "session-env",
                "debug",
                "statsig",
                "telemetry",
                "cache",
                "file-history",
            ),
        ),
    ),
    copied=(".claude.json",),
    login=AgentLogin(
        variables=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
        ),
        files=(".claude/.credentials.json",),
        command="claude setup-token",
    ),
)
