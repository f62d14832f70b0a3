"""The files that pages load, read at import, because root may give up its privileges afterwards."""

from __future__ import annotations

from importlib.resources import files

KINDS = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The media types of the files, by name."""

_FILES = files("ralph_wrap.interfaces.web") / "assets" / "static"

CONTENT = {name: (_FILES / name).read_bytes() for name in KINDS}
"""The content of the files, by name."""
