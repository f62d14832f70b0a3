"""Antigravity CLI, known from accounts of its documentation only.

The page is https://antigravity.google/docs/cli/headless, as others quote it in October 2026.

It succeeds Gemini CLI, which has ended for personal plans. ``--print`` takes the prompt as an argument, and
prints the answer as text. ``--dangerously-skip-permissions`` permits every tool. By default it ends after
five minutes, done or not; ``--print-timeout`` takes a longer time. It continues an earlier conversation by
``--conversation CONVERSATION``, whose name only its JSON output tells.

In a sandbox it keeps nothing in the user's home.

It keeps its login in the system's keyring, or in a container in a file, which some versions do not read again
(https://github.com/google-antigravity/antigravity-cli/issues/479).
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "agy",
    ("agy", "--dangerously-skip-permissions", "--print-timeout", "168h", "--print", "{prompt}"),
    "curl -fsSL https://antigravity.google/cli/install.sh | bash",
    prompt="argument",
    resume=("--conversation", "{session}"),
    homes=(AgentHome(".gemini"),),
    login=AgentLogin(
        files=(".gemini/antigravity-cli/antigravity-oauth-token",),
        command="agy, and there sign in",
        words=("Error: authentication required",),
    ),
)
