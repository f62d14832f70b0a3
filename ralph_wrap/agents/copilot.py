"""GitHub Copilot CLI (``copilot --help``, ``copilot help environment``).

https://docs.github.com/en/copilot/reference/copilot-cli-reference/cli-programmatic-reference (November 2026)

Without ``-p`` it reads the prompt from standard input, if that is no terminal. ``--allow-all`` permits every
tool, path and address. ``--no-ask-user`` takes away the tool that asks the user. By default it downloads its
next version while it works; ``--no-auto-update`` prevents this.

In a sandbox it keeps its sessions and its login. Other runs execute the programs in ``~/.cache/copilot``.

Its login is a variable, the login of ``gh``, or an entry of the system's keyring. A provider of the user's
own (``COPILOT_PROVIDER_BASE_URL``) needs none. Without a login it says so on stderr, and then what can be
done.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

_LIST = r"(?:\n• .*)+"

AGENT = Agent(
    "copilot",
    ("copilot", "--allow-all", "--no-ask-user", "--no-auto-update", "--output-format", "json"),
    "npm install -g @github/copilot",
    output="copilot",
    resume=("--resume", "{session}"),
    homes=(
        AgentHome(".copilot", "COPILOT_HOME", kept=("config.json", "session-state/"), fresh=("logs",)),
        AgentHome(".cache/copilot"),
    ),
    login=AgentLogin(
        variables=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL"),
        files=(".config/gh/hosts.yml",),
        command="copilot login",
        endings=(
            rf"Error: No authentication information found\.\nCopilot can be .*\nTo authenticate, .*:{_LIST}",
            rf"Error: Classic Personal Access Tokens .*\nThe .*\nPlease .*\nTo fix this, you can:{_LIST}",
        ),
    ),
)
