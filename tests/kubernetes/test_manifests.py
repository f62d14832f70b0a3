"""``docker/kubernetes``: the API server accepts what kustomize and Helm make, and both make the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kubernetes.charts import render_chart, render_kustomization

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster

VALUES = {
    "remote": "https://git.example/you/project.git",
    "run": "r1a2b3c4",
    "spec": "0" * 40,
    "count": 3,
    "parallel": 2,
    "image": "registry.example/ralph-wrap:latest",
}
"""What the kustomization has until a user changes it."""


def _render(way: str) -> str:
    return render_chart("ralph-wrap", VALUES) if way == "chart" else render_kustomization()


def _objects(way: str) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(_render(way)) if document}


def _normalized(way: str) -> Any:
    """Return the spec of the Job, with its environment as one table."""
    objects = _objects(way)
    spec = objects["Job"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    variables = {entry["name"]: entry["value"] for entry in container.pop("env")}
    sources = container.pop("envFrom")
    container["env"] = variables | objects.get("ConfigMap", {}).get("data", {})
    container["secrets"] = [source["secretRef"] for source in sources if "secretRef" in source]
    for defaulted in (container, spec["template"]["spec"]):
        for name in ("imagePullPolicy", "nodeSelector"):
            defaulted.pop(name, None)
    spec["template"].pop("metadata")
    return spec


@pytest.mark.parametrize("way", ["kustomize", "chart"])
def test_the_api_server_accepts_every_object(cluster: Cluster, way: str) -> None:
    """Each of them, down to the last field: an unknown one is an error."""
    rendered = _render(way)
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    accepted = cluster.control.kubectl(*arguments, text=rendered)
    assert {line.split("/")[0] for line in accepted.splitlines()} >= {
        "job.batch",
        "networkpolicy.networking.k8s.io",
    }
    wrong = rendered.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    assert wrong != rendered
    with pytest.raises(AssertionError, match="readOnlyRootFileSystem"):
        cluster.control.kubectl(*arguments, text=wrong)


def test_both_ways_make_the_same_job() -> None:
    """One Job, whichever way a user prefers."""
    assert _normalized("chart") == _normalized("kustomize")


@pytest.mark.parametrize("way", ["kustomize", "chart"])
def test_a_pod_gets_no_token_and_no_root(way: str) -> None:
    """An agent may run anything, so its pod has nothing to steal and nothing to change."""
    pod = _objects(way)["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("missing", ["remote", "run", "spec"])
def test_the_chart_names_a_value_that_is_missing(missing: str) -> None:
    """The message says what the value is."""
    with pytest.raises(AssertionError, match=f"{missing}: the "):
        render_chart("x", {name: value for name, value in VALUES.items() if name != missing})
