"""The texts of the first files of a project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ralph_wrap.config import ROWS

PROMPT = f"""\
# Work through TODO.md

Take the first open item of TODO.md, finish it, and tick it off.
If there is no TODO.md, run the tests and repair the next one that fails.

# Rules

- You get this same text in each iteration. Look at `git log` first: your earlier commits are there.
- Do one step in each iteration. Read the code around it first, and keep its style.
- Run the tests before you commit. Commit each finished step, with a message that says why.
- Change files in this directory only, and do not push.
- If something stops you, write it into NOTES.md and go on with the next step.

# End

When the whole task is done and the tests pass, end your answer with this line:

{ROWS["until"].default}

As long as anything is left to do, leave that line out.
"""
"""The prompt; the default task is useful in many projects, and shows the form of a task.

It is all for the agent: what the user has to know stands in :data:`ABOUT_THE_PROMPT`.
"""

ABOUT_THE_PROMPT = (
    "Replace its first lines by your task. The first of them becomes the title of the session.",
    "Say how the agent can see that the task is done.",
    "The session reads it again before each iteration, so you can change it while the loop runs.",
)
"""What the user has to know about this file."""

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "Limits": {
        "max_iterations": 100,
        "max_time": "8h",
        "max_cost": 20,
        "iteration_timeout": "30m",
        "idle_timeout": "10m",
    },
    "What proves that the work is done": {"verify": "make test", "verify_timeout": "15m"},
    "The worktree of a session": {
        "copy": [".env"],
        "setup": "npm ci",
        "teardown": "docker compose down",
        "submodules": "init",
        "pool": 2,
    },
    "What happens to its work": {"commit_each": True, "push": "origin", "on_leak": "stop"},
    "Review": {"main": "main", "check": "make test", "merge_on_complete": "main"},
}
"""Keys of the configuration, each with an example of a value."""


def configuration(agent: str) -> str:
    """Return a configuration that names an agent; all other keys are comments."""
    lines = [
        "#:schema ./config.schema.json",
        "",
        "# The settings of ralph-wrap for this project. A line such as `#key = value` is an example: remove",
        "# its first # to use it. `ralph-wrap config show` prints every setting that is in force.",
        "# An option on the command line, or a variable RALPH_WRAP_<KEY>, is stronger than this file.",
        "",
        "# The agent of `ralph-wrap run`.",
        f"agent = {json.dumps(agent)}",
    ]
    for heading, examples in EXAMPLES.items():
        lines += ["", f"# ---- {heading} ----"]
        for key, value in examples.items():
            lines += ["", f"# {ROWS[key].full_help}", f"#{key} = {json.dumps(value)}"]
    return "\n".join([*lines, ""])
