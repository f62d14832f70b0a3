"""Test runners and linters that would find the files of worktrees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.doctor import examine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

JEST = '{"testPathIgnorePatterns": ["<rootDir>/[.]ralph/"]}'
NODE = '{"scripts": {"test": "node --test%s"}}'


@pytest.mark.parametrize(
    ("file", "without", "with_pattern"),
    [
        ("jest.config.json", "{}", JEST),
        ("package.json", '{"jest": {}}', f'{{"jest": {JEST}}}'),
        ("vitest.config.ts", "test: {}", 'test: { exclude: [".ralph/**"] }'),
        ("eslint.config.mjs", "export default []", 'export default [{ ignores: [".ralph/"] }]'),
        ("biome.json", "{}", '{"files": {"includes": ["**", "!**/.ralph"]}}'),
        ("package.json", NODE % " --test-reporter=tap", None),
        ("package.json", None, NODE % " test/*.test.js"),
        ("pyproject.toml", '[tool.pytest]\nnorecursedirs = ["build"]\n', None),
        ("pyproject.toml", None, '[tool.pytest]\nnorecursedirs = [".*", "build"]\n'),
        ("pytest.ini", "[pytest]\nnorecursedirs = build\n", "[pytest]\nnorecursedirs = build .ralph\n"),
        ("pytest.ini", None, "[pytest]\naddopts = -q\n"),
        ("tsconfig.json", None, "{}"),
        ("tsconfig.json", None, '{"include": ["src/**/*", "./*.ts", ".storybook"]}'),
        (
            "tsconfig.json",
            '{"include": ["src", ".*/**/*"]}',
            '{"include": [".*/**/*"], "exclude": [".ralph"]}',
        ),
        (
            "tsconfig.build.json",
            '{"include": ["**/.*/*"]}',
            '{"include": ["**/.*/*"], "exclude": [".ralph"]}',
        ),
        (".eslintrc.json", None, "{}"),
    ],
)
def test_a_tool_that_finds_worktrees_is_noted(
    repo: Repo, host: Path, file: str, without: str | None, with_pattern: str | None
) -> None:
    """It is a note with the pattern, and none where the configuration has it or needs none."""
    for text, verdict in ((without, "note"), (with_pattern, "ok")):
        if text is None:
            continue
        repo.write(file, text)
        checks = [row for row in examine(repo.path, os.environ, host).checks if row.check == "other tools"]
        assert {row.verdict for row in checks} <= {verdict}, checks
        assert verdict == "ok" or f"exclude them in {file}: " in checks[0].fix
