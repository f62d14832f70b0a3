"""The file ``.ralph/fleet.yaml``: where a fleet runs, and with what. Nothing on the remote changes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.config.parsers import did_you_mean, duration
from ralph_wrap.errors import UsageError
from ralph_wrap.system import files

FILE = ".ralph/fleet.yaml"
"""Where it is, below the project root."""

_LARGEST = 1 << 20  # bytes


class ClusterConfig(NamedTuple):
    """What the file says.

    Attributes:
        image: the image of the workers, with ralph-wrap and the agent.
        remote: address of the git remote, as pods reach it; empty for that of the remote ``origin``.
        context: of kubectl; empty for the current one.
        namespace: empty for that of the context.
        git_credential: name of a secret whose key ``credentials`` is a file of git-credential-store(1).
        secrets: names of secrets whose keys become variables of the agent, such as its API key.
        env: further variables, none of them secret.
        grace: seconds between SIGTERM and SIGKILL.
        retries: failed pods of an index until the index has failed. Each moved pod counts, too.
        node_timeout: seconds until the pods of a lost node are replaced.
        keep: seconds until a finished Job is deleted.
        stagger: seconds between two first starts.
        workspace: size limit of the directory that a worker clones into.
        user: user id and group id of the container.
        pod: fields of the pod as Kubernetes has them, merged into it last.

    """

    image: str
    remote: str = ""
    context: str = ""
    namespace: str = ""
    git_credential: str = ""
    secrets: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    grace: float = 120.0
    retries: int = 20
    node_timeout: float = 60.0
    keep: float = 86400.0
    stagger: float = 2.0
    workspace: str = "10Gi"
    user: int = 1000
    pod: Mapping[str, Any] = {}


def read_cluster(root: Path) -> ClusterConfig:
    """Return what the file of a project says.

    Arguments:
        root: the project root.

    Raises:
        UsageError: there is no such file, or a key in it is wrong.
        ImportError: PyYAML, which the extra ``fleet`` brings, is not installed.

    """
    import yaml  # noqa: PLC0415 -- it may not be installed

    path = root / FILE
    try:
        content = files.read(path, _LARGEST)
    except OSError as error:
        hint = "docs/fleet.md shows one; the least is: image: IMAGE"
        raise UsageError(f"{FILE} cannot be read: {error.strerror}", hint) from None
    try:
        return parse_cluster(yaml.safe_load(content))
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{FILE} is no YAML: {' '.join(str(error).split())}", "correct it") from None


def parse_cluster(loaded: Any) -> ClusterConfig:
    """Return the meaning of the content of the file.

    Raises:
        UsageError: a key is wrong.

    """
    if not isinstance(loaded, dict):
        raise UsageError(f"{FILE} has no keys", "the least is: image: IMAGE")
    for key in loaded:
        if key not in ClusterConfig._fields:
            near = did_you_mean(str(key), ClusterConfig._fields)
            raise UsageError(f"{FILE}: unknown key {str(key)!r}{near}", "docs/fleet.md lists the keys")
    if not loaded.get("image"):
        raise UsageError(
            f"{FILE}: the key image is missing", "it names an image with ralph-wrap and the agent"
        )
    return ClusterConfig(**{key: _read(key, value) for key, value in loaded.items()})


def _read(key: str, value: Any) -> Any:
    read, expected = _KINDS[key]
    try:
        return read(value)
    except (TypeError, ValueError):
        raise UsageError(f"{FILE}: {key}: {expected} is expected, not {value!r}", "docs/fleet.md") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    if value < 0:
        raise ValueError
    return value


def _time(value: Any) -> float:
    return duration(value) if isinstance(value, str) else float(_count(value))


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_text, value))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return {_text(key): entry for key, entry in value.items()}


def _pod(value: Any) -> dict[str, Any]:
    pod = _table(value)
    json.dumps(pod)  # raises TypeError for a date, and ValueError for a table inside of itself: YAML has both
    return pod


def _strings(value: Any) -> dict[str, str]:
    return {key: _text(entry) for key, entry in _table(value).items()}


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(
        ("image", "remote", "context", "namespace", "git_credential", "workspace"),
        (_text, "a text"),
    ),
    "secrets": (_texts, "a list of names"),
    "env": (_strings, "a table of texts"),
    "pod": (_pod, "a table of what JSON has"),
    **dict.fromkeys(("retries", "user"), (_count, "a whole number")),
    **dict.fromkeys(("grace", "node_timeout", "keep", "stagger"), (_time, "a duration such as 90s")),
}
