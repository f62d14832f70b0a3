"""Build the site, with each warning as an error, and check that a page asks no other server for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//",
    re.IGNORECASE,
)


def requests(site: Path) -> list[str]:
    """Return what the pages of a site load from elsewhere; links that a reader follows are free."""
    found = []
    for page in sorted(site.rglob("*.html")):
        found += [f"{page.relative_to(site)}: {tag}" for tag in _LOADED.findall(page.read_text())]
    return found


def main() -> int:
    """Build the site in a temporary directory; return the exit status."""
    with TemporaryDirectory() as directory:
        mkdocs = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", directory)
        quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement, which --strict does not count
        status = subprocess.run(mkdocs, cwd=ROOT, env=quiet, check=False).returncode
        foreign = [] if status else requests(Path(directory))
    for line in foreign:
        sys.stderr.write(f"{line}\n")
    return status or int(bool(foreign))


if __name__ == "__main__":
    raise SystemExit(main())
