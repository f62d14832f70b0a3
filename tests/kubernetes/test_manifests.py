"""What a user gives to Kubernetes: the API server accepts it, down to the last field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.fleet.kubernetes.cluster import ClusterConfig
from ralph_wrap.interfaces.fleet.kubernetes.job import CONTAINER, job_manifest
from ralph_wrap.interfaces.fleet.spec import FleetSpec

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster

POLICY = Path(__file__).parents[2] / "docker/kubernetes/network-policy.yaml"
_POD = {
    "nodeSelector": {"pool": "agents"},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "containers": [
        {
            "name": CONTAINER,
            "imagePullPolicy": "Always",
            "resources": {"limits": {"memory": "4Gi"}},
            "volumeMounts": [{"name": "key", "mountPath": "/etc/key", "readOnly": True}],
        },
        {"name": "beside", "image": "registry.example/beside:1"},
    ],
    "volumes": [{"name": "key", "secret": {"secretName": "key"}}],
}


def _job() -> str:
    config = ClusterConfig("registry.example/agents:1", git_credential="git", secrets=("key",), pod=_POD)
    return json.dumps(job_manifest(config, FleetSpec("r1", 3), "0" * 40, "https://git.example/project.git"))


def _accepted(cluster: Cluster, manifest: str) -> str:
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    return cluster.control.kubectl(*arguments, text=manifest)


def test_the_job_is_accepted_with_every_field(cluster: Cluster) -> None:
    """Also with fields of the user merged into its pod; an unknown one is an error."""
    assert _accepted(cluster, _job()).startswith("job.batch/ralph-r1")
    wrong = _job().replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    with pytest.raises(AssertionError, match="readOnlyRootFileSystem"):
        _accepted(cluster, wrong)


def test_the_network_policy_is_accepted_and_matches_the_pods(cluster: Cluster) -> None:
    """Nothing on this cluster enforces it."""
    assert _accepted(cluster, POLICY.read_text()).startswith("networkpolicy.networking.k8s.io/ralph-wrap")
    labels = json.loads(_job())["spec"]["template"]["metadata"]["labels"]
    assert f"app.kubernetes.io/name: {labels['app.kubernetes.io/name']}" in POLICY.read_text()
