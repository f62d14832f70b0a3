"""Kimi Code (``kimi --help``).

https://moonshotai.github.io/kimi-code/en/reference/kimi-command (November 2026)

The command of its predecessor, ``kimi-cli``, has the same name and other options.

It takes the prompt as an argument only, which Linux limits to 128 KiB. With ``--prompt`` it asks for no
permission, and refuses options about permissions. Its models are names of its configuration file, and
``--model`` takes one of these.

In a sandbox it keeps its login and its sessions. ``config.toml`` has hooks, so it cannot change it.

Its login is a file that ``kimi login`` writes. It reads no key from the environment, except with a model from
there (``KIMI_MODEL_NAME``); a key may stand in ``config.toml``. Without a login
it says on stderr that no model is configured, that a provider has no credential, or that this is refused, and
then where its log is.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "kimi",
    ("kimi", "--output-format", "stream-json", "--prompt", "{prompt}"),
    "npm install -g @moonshot-ai/kimi-code",
    prompt="argument",
    output="kimi",
    resume=("--session", "{session}"),
    homes=(
        AgentHome(
            ".kimi-code",
            "KIMI_CODE_HOME",
            kept=("credentials/", "sessions/", "session_index.jsonl", "workspaces.json", "device_id"),
            fresh=("logs", "updates", "cache"),
        ),
    ),
    login=AgentLogin(
        variables=("KIMI_MODEL_API_KEY",),
        files=(".kimi-code/credentials/kimi-code.json",),
        command="kimi login",
        endings=(
            r"error: failed to run prompt: No model configured\. .*\nSee log: .*",
            r"error: failed to run prompt: provider\.auth_error: .*\nSee log: .*",
            r"error: failed to run prompt: provider .* has no credential configured\nSee log: .*",
        ),
    ),
)
