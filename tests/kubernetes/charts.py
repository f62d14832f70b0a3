"""The Helm chart of ``docker/kubernetes`` and its kustomization, rendered."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kubernetes import needs

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY = Path(__file__).parents[2] / "docker" / "kubernetes"


def render_chart(name: str, values: Mapping[str, Any]) -> str:
    """Return the objects that Helm makes of a chart; its errors are AssertionErrors."""
    chart = str(DIRECTORY / "chart")
    return _run("helm", "template", name, chart, "--values", "-", text=json.dumps(dict(values)))


def render_kustomization() -> str:
    """Return the objects that kubectl makes of a kustomization."""
    return _run("kubectl", "kustomize", str(DIRECTORY / "kustomize"))


def _run(program: str, *arguments: str, text: str = "") -> str:
    command = (str(needs.directory() / program), *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
