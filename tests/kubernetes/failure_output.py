"""What a failed test on the cluster prints: its pods with their logs, and what each push has moved."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kubernetes.control_plane import ControlPlane
    from tests.kubernetes.remote import Remote

_LAST = 200  # lines of a log that are printed
_BLOBS = ("refs/ralph/claims/", "refs/ralph/fleet/")


class PodLogs:
    """Keeps the logs of pods that the kubelets of some nodes remove together with their pods.

    Twice a second, each new file gets a second link. What the container writes later is in it, too.

    Arguments:
        directory: where the links are.
        sources: ``/var/log/pods`` of each node, as the host names it.

    """

    def __init__(self, directory: Path, sources: list[Path]) -> None:
        self._directory = directory
        self._sources = sources
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod logs", daemon=True)
        self._directory.mkdir()
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.5):
            self.keep()

    def keep(self) -> None:
        """Link each file that is new."""
        for source in self._sources:
            for file in source.glob("*/*/*.log"):
                kept = self._directory / f"{source.parents[1].name} {'_'.join(file.parts[-3:])}"
                try:
                    os.link(file, kept)
                except (FileExistsError, FileNotFoundError):  # it is kept already, or its pod has just gone
                    continue

    def since(self, start: float) -> Iterator[tuple[str, str]]:
        """Yield name and end of each log that grew after a time, in seconds since the epoch."""
        self.keep()
        for file in sorted(self._directory.iterdir()):
            if file.stat().st_mtime >= start:
                lines = file.read_text(errors="replace").splitlines()
                yield file.name, "\n".join(lines[-_LAST:])

    def end(self) -> None:
        """Stop the thread."""
        self._ends.set()
        self._thread.join()


def describe_pods(control: ControlPlane) -> str:
    """Return the Jobs and pods that exist, and the last events; the error if the API server is away."""
    asked = [("jobs,pods", "--output=wide"), ("events", "--sort-by=.metadata.creationTimestamp")]
    answers = [control.call("get", *arguments) for arguments in asked]
    return "\n".join(answer.stdout + answer.stderr for answer in answers)


def describe_pushes(remote: Remote) -> str:
    """Return each ref that a push has moved, the content of claims and indexes, and what agents wrote."""
    rows = []
    for update in remote.updates():
        is_blob = update.ref.startswith(_BLOBS) and "/output/" not in update.ref and set(update.new) != {"0"}
        rows.append(f"{update.ref} {update.old[:8]}..{update.new[:8]}")
        if is_blob and remote.attempt("cat-file", "blob", update.new):
            rows.append("    " + remote.git("cat-file", "blob", update.new).strip())
    ids = {ref.removeprefix(_BLOBS[0]) for ref in remote.refs(_BLOBS[0])}
    journal = (remote.path.parent / "journal").read_text().splitlines()
    return "\n".join([*rows, *(line for line in journal if line.split(" ")[0] in ids)])
