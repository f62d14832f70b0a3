"""Pass the prompt to an agent: on standard input, as an argument, or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ralph_wrap.config import AgentSettings, LoopLimits, prompt_file
from ralph_wrap.system import files

_LONGEST_ARGUMENT = (128 << 10) - 1  # bytes (execve(2): MAX_ARG_STRLEN, with the NUL at its end)


def content(agent: AgentSettings) -> bytes | None:
    """Return the prompt, ``None`` if there is none; a prompt file is read again each time.

    Raises:
        OSError: the file cannot be read.

    """
    if agent.prompt_file is not None:
        return prompt_file.read(agent.prompt_file)
    if agent.prompt is not None:
        return agent.prompt.encode("utf-8", "surrogateescape")
    return None


def preamble(number: int, limits: LoopLimits, environ: Mapping[str, str]) -> bytes:
    """Return the text before the prompt: the workspace of the agent, how the loop ends, and the review.

    Arguments:
        limits: the maximum number of iterations, and what the agent says to end the loop.
        environ: the agent's environment, which names its workspace.

    """
    path, branch = environ["RALPH_WORKSPACE"], environ["RALPH_BRANCH"]
    workspace = f"{path}, which is not isolated. Nothing outside of it may be changed."
    if branch:
        workspace = (
            f"a git worktree of its own, {path}, on branch {branch}."
            " It must not leave that worktree: nothing outside of it may be changed."
        )
    of = f" of at most {limits.max_iterations}" if limits.max_iterations else ""
    until, blocked = limits.until.strip(), limits.blocked.strip()
    text = (
        f"This session works in {workspace}\n"
        f"This is iteration {number}{of}.\n"
        f"Its work is reviewed by its commits, so whatever is done has to be committed there.\n"
    )
    if until:
        text += (
            f"The loop ends when the final answer has {until} on a line of its own."
            " Only an answer that finishes the whole task may have that line.\n"
        )
    if blocked:
        text += (
            "If the work cannot go on without a decision or an action of a person, the final answer may have"
            f" {blocked} on a line of its own, and after it the question. Then the loop ends, too.\n"
        )
    text += "\n"
    return text.encode("utf-8", "surrogateescape")


def room(agent: AgentSettings, prompt: bytes) -> int:
    """Return how many bytes can be added to a prompt before the agent can no longer be started."""
    if agent.invocation.prompt != "argument":
        return sys.maxsize
    longest = max((len(os.fsencode(word)) for word in agent.command if "{prompt}" in word), default=0)
    return _LONGEST_ARGUMENT - longest - len(prompt)


def hand_over(
    agent: AgentSettings, prompt: bytes | None, directory: Path
) -> tuple[int | None, tuple[str, ...]]:
    """Return a descriptor for an agent's standard input (``None`` for ours) and its command.

    The descriptor is an open file, so the agent can read it at any time. An agent that takes the prompt as an
    argument or a file gets an empty one. It could read other content as a part of the prompt.

    Arguments:
        agent: the command, and how it takes the prompt.
        prompt: the prompt; ``None`` if there is none.
        directory: the directory of the session; a prompt file is written there.

    Raises:
        OSError: the disk is full.

    """
    if prompt is None:
        return None, agent.command
    style, command = agent.invocation.prompt, agent.command
    if style == "argument":
        text = os.fsdecode(prompt.replace(b"\0", b""))  # an argument cannot contain NUL (execve(2))
        command = tuple(word.replace("{prompt}", text) for word in command)
    elif style == "file":
        path = directory / "prompt"
        files.replace(path, prompt)
        command = tuple(word.replace("{prompt_file}", os.fspath(path)) for word in command)
    descriptor = files.anonymous_file()
    if style == "stdin":
        files.write_all(descriptor, prompt)
        os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor, command
