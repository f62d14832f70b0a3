"""How a session was started, as another machine can start it: with the text of its prompt file."""

from __future__ import annotations

import os

from ralph_wrap.config import prompt_file
from ralph_wrap.git import run_git
from ralph_wrap.session.context import SessionContext
from ralph_wrap.state.session_start import SessionStart
from ralph_wrap.system.log import get_logger

log = get_logger()

_LARGEST = 1 << 17  # bytes of a prompt; each push brings the claim with it


def portable(start: SessionStart | None, context: SessionContext) -> SessionStart | None:
    """Return the start of a session with the text of its prompt file, if the base does not have the file.

    The text is in the claim, which each reader of the remote can read, as a prompt of ``-p`` is. The user of
    the other machine approves it like the command.
    """
    path = context.settings.prompt_file
    if start is None or path is None or "prompt" in start.options:
        return start
    try:
        content = prompt_file.read(path) if path.is_file() else b""  # a pipe can be read only once
        text = content.decode()
    except (OSError, UnicodeDecodeError):
        return start
    if not text or "\0" in text or _is_committed(context, content):
        return start
    if len(content) > _LARGEST:
        log.warning(
            "prompt.stays",
            f"the prompt file is too large for the remote: another machine needs {path.name}",
            "commit it",
        )
        return start
    options = {name: value for name, value in start.options.items() if name != "prompt_file"}
    return start._replace(options={**options, "prompt": text})


def _is_committed(context: SessionContext, content: bytes) -> bool:
    path, checkout = context.settings.prompt_file, context.project.checkout
    assert path is not None
    absolute = path.absolute()
    if not absolute.is_relative_to(checkout):
        return False
    name = f"{context.base}:{os.fspath(absolute.relative_to(checkout))}"
    return run_git(context.project.git, "cat-file", "blob", name, accept=(0, 128)).stdout == content
