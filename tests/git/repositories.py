"""Git and repositories to call it in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralph_wrap import git
from ralph_wrap.errors import RalphError
from ralph_wrap.git import Git


def git_in(directory: Path) -> Git:
    """Return what calls git in a directory."""
    return Git(directory, git.git_environment(os.environ))


def refusal(directory: Path) -> tuple[type[RalphError], str, str]:
    """Return what is said of a directory in which no repository can be found."""
    with pytest.raises(RalphError) as caught:
        git.locate_repository(git_in(directory))
    return type(caught.value), caught.value.message, caught.value.hint
