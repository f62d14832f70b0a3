"""The files that pages load, read with the program: who gives up privileges may not be able to later."""

from __future__ import annotations

from importlib.resources import files

KINDS = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Their types, by name."""

_FILES = files("ralph_wrap.interfaces.web") / "assets" / "static"

CONTENT = {name: (_FILES / name).read_bytes() for name in KINDS}
"""What is in them."""
