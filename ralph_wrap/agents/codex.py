"""Codex (``codex exec --help``, https://developers.openai.com/codex/noninteractive).

Without a prompt as its argument it reads one from standard input. It asks nobody in this mode, but works in
a sandbox of its own that by default can write nothing; the one that can write files keeps ``.git`` read-only,
so that nothing can be committed. It is to work in a plain directory, too, which else it refuses.
"""

from ralph_wrap.agents.definition import Agent

AGENT = Agent(
    "codex",
    ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    "npm install -g @openai/codex",
    output="codex",
    resume=("resume", "{session}"),
)
