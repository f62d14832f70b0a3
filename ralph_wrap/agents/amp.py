"""Amp, known from its documentation only (https://ampcode.com/manual, November 2026).

With ``--execute`` it takes the prompt from standard input, works, prints its final message, and ends. It runs
tools without asking, unless a plugin of the user forbids it; older versions asked, and
``--dangerously-allow-all`` permitted everything. It has modes (``--mode smart``) instead of models. It
continues a thread by a sub-command, ``amp threads continue THREAD --execute``; the name of the thread is in
its JSON output only.

In a sandbox it keeps nothing in the user's home.
"""

from ralph_wrap.agents.definition import Agent, AgentHome, AgentLogin

AGENT = Agent(
    "amp",
    ("amp", "--dangerously-allow-all", "--execute"),
    "npm install -g @ampcode/cli",
    model=("--mode", "{model}"),
    homes=(AgentHome(".config/amp"), AgentHome(".local/share/amp")),
    login=AgentLogin(
        variables=("AMP_API_KEY",),
        files=(".local/share/amp/secrets.json",),
        command="amp login",
    ),
)
