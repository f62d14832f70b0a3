"""The manifests of a hub: kustomize and Helm make the same, and its pod has no more rights than a session."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.kubernetes.charts import render_chart, render_kustomization

NAME = "ralph-wrap-hub"
VALUES = {"origin": "https://git.example/you/project.git", "image": "registry.example/ralph-wrap:latest"}
"""What the kustomization has until a user changes it."""


def _objects(way: str) -> dict[str, Any]:
    rendered = render_chart(NAME, VALUES, "hub-chart") if way == "chart" else render_kustomization("hub")
    return {document["kind"]: document for document in yaml.safe_load_all(rendered) if document}


def _container(way: str) -> Any:
    (container,) = _objects(way)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return container


def test_both_ways_make_the_same_hub() -> None:
    """The kustomization has the address of origin in a ConfigMap, and the chart in the command."""
    chart, kustomize = _container("chart"), _container("kustomize")
    origin = _objects("kustomize")["ConfigMap"]["data"]["ORIGIN"]
    del kustomize["envFrom"]
    kustomize["args"] = [word.replace("$(ORIGIN)", origin) for word in kustomize["args"]]
    chart["args"].remove("--interval=20s")
    assert chart == kustomize
    services = [_objects(way)["Service"]["spec"]["ports"] for way in ("chart", "kustomize")]
    assert services[0] == services[1]


@pytest.mark.parametrize("way", ["kustomize", "chart"])
def test_one_pod_has_the_volume_and_no_rights(way: str) -> None:
    """Only pods of sessions connect to it."""
    objects = _objects(way)
    spec = objects["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert (spec["replicas"], len(spec["volumeClaimTemplates"])) == (1, 1)
    assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]) == (False, True)
    assert _container(way)["securityContext"]["readOnlyRootFilesystem"] is True
    [allowed] = objects["NetworkPolicy"]["spec"]["ingress"]
    assert allowed["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "ralph-wrap"}}}]


def test_the_chart_names_the_missing_origin() -> None:
    """The message says what the value is."""
    with pytest.raises(AssertionError, match="origin: the address"):
        render_chart(NAME, {}, "hub-chart")
