"""Where a configuration is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import config
from ralph_wrap.config import Settings
from ralph_wrap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ConfiguredProject:
    """A project, and the directory in which the user types."""

    root: Path
    cwd: Path

    def file(self, content: str | bytes) -> Path:
        """Write the configuration file and return its path."""
        path = self.root / ".ralph" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def load(
        self,
        flags: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("agent.sh",),
    ) -> Settings:
        """Return the settings of a session that is started here."""
        return config.load(self.root, self.root, self.cwd, flags or {}, environ or {}, command)

    def value(self, option: str, **sources: Mapping[str, str]) -> Any:
        """Return one setting, no command typed; a prompt file relative to the directory where both are."""
        found = getattr(self.load(**sources, command=()), option)
        return found.relative_to(self.root) if isinstance(found, Path) else found

    def refused(
        self, flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
    ) -> UsageError:
        """Return the error that loading ends with."""
        with pytest.raises(UsageError) as caught:
            self.load(flags, environ)
        return caught.value
