"""Check of the test runners and linters of a project: whether they also find the files of worktrees.

A worktree is below ``.ralph/worktrees`` of the checkout. Git ignores it, but such programs do not know that.
What each does by itself is on the page docs/worktree.md; those that leave out names with a dot need nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.commands.doctor.result import DoctorCheck, fine, noted
from ralph_wrap.system import files

_NAME = ".ralph"


class _Tool(NamedTuple):
    """A program that finds worktrees, unless its configuration excludes them.

    Attributes:
        name: what people call it.
        configured: matches the name of a file that is its configuration.
        pattern: what excludes the worktrees.
        content: matches the text of a file that has its configuration beside others; empty: each file has.

    """

    name: str
    configured: str
    pattern: str
    content: str = ""


_JEST = 'testPathIgnorePatterns and modulePathIgnorePatterns: "<rootDir>/[.]ralph/"'
_TOOLS = (
    _Tool(
        "jest",
        r"jest\.config\.(js|mjs|cjs|ts|mts|cts|json)",
        _JEST,
    ),
    _Tool("jest", r"package\.json", _JEST, r'"jest"\s*:\s*\{'),
    _Tool("vitest", r"vitest\.(config|workspace)\.(js|mjs|cjs|ts|mts|cts|json)", 'test.exclude: ".ralph/**"'),
    _Tool("eslint", r"eslint\.config\.(js|mjs|cjs|ts|mts|cts)", '{ ignores: [".ralph/"] }'),
    _Tool("biome", r"biome\.jsonc?", 'files.includes: "!**/.ralph"'),
    _Tool(
        "node --test",
        r"package\.json",
        "node --test test/*.test.js",
        r'\bnode\s(-\S+\s)*--test(\s+-\S+)*\s*["&;|]',
    ),
    # By itself tsc leaves out names with a dot; only a pattern that begins with a dot finds them.
    _Tool(
        "tsc",
        r"[tj]sconfig(\..+)?\.json",
        'exclude: ".ralph"',
        r'"include"\s*:\s*\[[^\]]*"([^"]*/)?\.\*',
    ),
    # Without this setting pytest leaves out names with a dot.
    _Tool(
        "pytest",
        r"pytest\.ini|pyproject\.toml|tox\.ini|setup\.cfg",
        'norecursedirs: ".*"',
        r"(?m)^\s*norecursedirs\b(?!\s*=[^\]=]*?(?<![\w*/])\.\*)",
    ),
)


def worktree_finders(root: Path) -> Iterator[DoctorCheck]:
    """Look for configurations of programs that would find the files of worktrees.

    Arguments:
        root: the checkout that has the worktrees.

    """
    name = "other tools"
    why = "a test runner or linter that you start in the project also runs the files of worktrees"
    excluded = []
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError:
        return
    for tool in _TOOLS:
        for file in filter(re.compile(tool.configured).fullmatch, names):
            try:
                text = files.read(root / file).decode(errors="replace")
            except OSError:  # a directory, or a symlink: not known
                continue
            if tool.content and not re.search(tool.content, text):
                continue
            if re.search(r"\.\W?ralph\b", text):
                excluded.append(file)
            else:
                yield noted(
                    name,
                    f"{tool.name} finds the worktrees in {_NAME}: {file} does not exclude them",
                    why,
                    f"exclude them in {file}: {tool.pattern}",
                )
    if excluded:
        yield fine(name, f"{', '.join(dict.fromkeys(excluded))}: the worktrees are excluded", why)
