"""A thousand sessions: nodes and pods that only the API server knows, and refs that no session has pushed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ralph_wrap.interfaces.fleet.index import IndexState
from ralph_wrap.interfaces.fleet.refs import index_ref
from ralph_wrap.state.remote_claim import RemoteClaim, ref_of
from ralph_wrap.state.session_start import SessionStart
from tests.kubernetes import needs

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.machine import Daemon
    from tests.kubernetes.remote import Remote

NODES = 10
"""Each of them takes 110 pods."""
SELECTOR = {"type": "kwok"}
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
_ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110"}
_STAGES = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-initialize}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
      - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {type: Ready, status: "True", reason: Ready, lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.podIP, operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      phase: Running
      podIP: 10.60.0.1
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  next: {delete: true, finalizers: {empty: false}}
"""  # noqa: E501 - a template of one line


def start_nodes(cluster: Cluster) -> Daemon:
    """Start kwok, which plays the kubelets of nodes that do not exist; return it."""
    cluster.control.kubectl("apply", "-f", "-", text="\n".join(map(json.dumps, map(_node, range(NODES)))))
    stages = cluster.hub.directory / "kwok.yaml"
    stages.write_text(_STAGES)
    return cluster.hub.start(
        "kwok",
        str(needs.directory() / "kwok"),
        f"--kubeconfig={cluster.control.kubeconfig}",
        f"--config={stages}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-label-selector=type=kwok",
        "--node-lease-duration-seconds=8",  # renewed each 2 s, as the kubelets do
    )


def delete_nodes(cluster: Cluster) -> None:
    """Delete those nodes."""
    cluster.control.kubectl("delete", "nodes", "--selector=type=kwok")


def _node(number: int) -> dict[str, object]:
    taint = {"key": TOLERATION["key"], "value": "fake", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"kwok-{number}", "labels": SELECTOR},
        "spec": {"taints": [taint]},
        "status": {"allocatable": _ROOM, "capacity": _ROOM},
    }


def write_sessions(remote: Remote, run: str, size: int, base: str) -> None:
    """Write the refs of sessions that run: an index and a claim for each."""
    blobs: list[bytes] = []
    refs: list[str] = []
    for number in range(size):
        agent_id = f"{number:08x}"
        session = f"20261125T090000Z-{agent_id}"
        start = SessionStart({"prompt": "Go on with the list. " * 20}, ("claude",), ".")
        claim = RemoteClaim(agent_id, session, f"ralph/{agent_id}", base, node="n1", start=start)
        refs += [index_ref(run, number), ref_of(agent_id)]
        blobs += [IndexState(number, agent_id).encode(), claim.next(title=f"task {number}").encode()]
    rows = [
        b"blob\nmark :%d\ndata %d\n%s\n" % (mark, len(blob), blob) for mark, blob in enumerate(blobs, start=1)
    ]
    marks = remote.path / "marks"
    remote.git("fast-import", "--quiet", f"--export-marks={marks}", stdin=b"".join(rows))
    oids = dict(line.split(" ") for line in marks.read_text().splitlines())
    changes = [f"create {ref} {oids[f':{mark}']}\n" for mark, ref in enumerate(refs, start=1)]
    remote.git("update-ref", "--stdin", stdin="".join(changes).encode())
