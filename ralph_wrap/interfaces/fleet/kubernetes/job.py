"""The one object in Kubernetes that a run is: an indexed Job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ralph_wrap.interfaces.fleet import order
from ralph_wrap.interfaces.fleet.kubernetes.cluster import ClusterConfig
from ralph_wrap.interfaces.fleet.spec import FleetSpec

CONTAINER = "ralph"
"""The name of the container in a pod."""

_WORKSPACE, _HOME, _TMP, _CREDENTIAL = "/workspace", "/home/ralph", "/tmp", "/etc/ralph-wrap/git"  # noqa: S108
_LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DO_NOT_DISRUPT = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def job_name(run: str) -> str:
    """Return the name of the Job of a run."""
    return f"ralph-{run}"


def job_manifest(config: ClusterConfig, spec: FleetSpec, commit: str, remote: str) -> dict[str, Any]:
    """Return the Job of a run.

    With ``podReplacementPolicy: Failed``, the pods of a dead node are never replaced (measured). The other
    policy allows no ``podFailurePolicy``, so each pod that is moved counts as one of the retries.

    Arguments:
        config: what ``.ralph/fleet.yaml`` says.
        spec: the run.
        commit: object id of its spec on the remote.
        remote: address of the git remote.

    """
    labels = {"app.kubernetes.io/name": "ralph-wrap", "ralph-wrap/run": spec.run}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(spec.run), "labels": labels}
        | ({"namespace": config.namespace} if config.namespace else {}),
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.size,
            "parallelism": min(spec.parallel, spec.size),
            "backoffLimitPerIndex": config.retries,
            "podReplacementPolicy": "TerminatingOrFailed",
            "ttlSecondsAfterFinished": math.ceil(config.keep),
            "template": {
                "metadata": {"labels": labels, "annotations": _DO_NOT_DISRUPT},
                "spec": _merged(_pod(config, _variables(config, spec.run, commit, remote)), config.pod),
            },
        },
    }


def _pod(config: ClusterConfig, variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(config.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": config.user,
            "runAsGroup": config.user,
            "fsGroup": config.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": _tolerations(config.node_timeout),
        "containers": [_container(config, variables)],
        "volumes": _volumes(config),
    }


def _container(config: ClusterConfig, variables: Mapping[str, str]) -> dict[str, Any]:
    mounts = [("workspace", _WORKSPACE), ("home", _HOME), ("tmp", _TMP)]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": config.image,
        "command": ["ralph-wrap", "fleet", "work"],
        "workingDir": _WORKSPACE,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
    }
    if config.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in config.secrets]
    if config.git_credential:
        container["volumeMounts"].append({"name": "git", "mountPath": _CREDENTIAL, "readOnly": True})
    return container


def _variables(config: ClusterConfig, run: str, commit: str, remote: str) -> dict[str, str]:
    variables = {
        **config.env,
        order.REMOTE: remote,
        order.RUN: run,
        order.SPEC: commit,
        order.GRACE: str(math.floor(config.grace)),
        order.WORKSPACE: _WORKSPACE,
        "HOME": _HOME,
        "TMPDIR": _TMP,
    }
    if config.git_credential:
        variables[order.CREDENTIAL] = f"{_CREDENTIAL}/credentials"
    return variables


def _volumes(config: ClusterConfig) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "workspace", "emptyDir": {"sizeLimit": config.workspace}},
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if config.git_credential:
        volumes.append({"name": "git", "secret": {"secretName": config.git_credential, "defaultMode": 0o440}})
    return volumes


def _tolerations(seconds: float) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": math.ceil(seconds)}
        for key in _LOST_NODE
    ]


def _merged(ours: Any, theirs: Any) -> Any:
    """Return a part of the pod with that of the user merged into it.

    Tables are merged by key. An entry of a list is merged with ours of the same *name*, or comes after ours.
    Anything else is replaced.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours | {key: _merged(ours.get(key), value) for key, value in theirs.items()}
    if not (_is_list_of_tables(ours) and _is_list_of_tables(theirs)):
        return theirs
    names = [entry["name"] for entry in ours if "name" in entry]
    changes = [entry for entry in theirs if entry.get("name") in names]
    added = [entry for entry in theirs if entry.get("name") not in names]
    for change in changes:
        ours = [_merged(entry, change) if entry.get("name") == change["name"] else entry for entry in ours]
    return [*ours, *added]


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
