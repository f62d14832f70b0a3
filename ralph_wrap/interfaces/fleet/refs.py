"""The refs of a run on the remote, and the form of its id."""

from __future__ import annotations

import re

FLEET = "refs/ralph/fleet/"
"""The refs of all runs."""

_RUN = re.compile(r"[a-z][a-z0-9-]{0,39}")


def is_run_id(text: str) -> bool:
    """Return whether a text has the form of a run id: it is part of names in Kubernetes."""
    return _RUN.fullmatch(text) is not None and not text.endswith("-")


def spec_ref(run: str) -> str:
    """Return the ref of the commit that describes a run."""
    return f"{FLEET}{run}/spec"


def index_ref(run: str, index: int) -> str:
    """Return the ref of the state of an index."""
    return f"{FLEET}{run}/index/{index}"


def output_ref(run: str, index: int) -> str:
    """Return the ref of what the workers of an index have printed."""
    return f"{FLEET}{run}/output/{index}"


def stop_ref(run: str, agent_id: str) -> str:
    """Return the ref that asks a session to stop."""
    return f"{FLEET}{run}/stop/{agent_id}"
