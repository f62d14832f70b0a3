"""Which changes of a branch change what other programs run: git, hooks, CI, editors, agents, build tools.

Their names are enough to say so. What they do is for the reader of the difference, where they come first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ralph_wrap.branches.gitlinks import unnamed
from ralph_wrap.git import Git
from ralph_wrap.git.index import GITLINK
from ralph_wrap.git.objects import small_contents
from ralph_wrap.git.safe.genuine import require_objects

TESTS = "tests"
"""The kind of files that a gate runs; a file that is of another kind, too, has that one."""

_EXECUTABLE, _LINK = "100755", "120000"
_LONGEST_TARGET = 4096  # bytes, PATH_MAX
_NAMES = {  # "NAME" is a file in any directory, "NAME/" everything in such a directory, "*" any text
    "git": ".gitattributes .gitmodules .lfsconfig",
    "hooks": ".githooks/ .husky/ .lefthook/ .lefthook.* lefthook.* .pre-commit-config.* .pre-commit-hooks.*"
    " .overcommit.yml .simple-git-hooks.* simple-git-hooks.* .lintstagedrc*",
    "ci": ".github/workflows/ .github/actions/ .gitlab-ci.yml .gitlab/ .circleci/ .buildkite/ .forgejo/"
    " .gitea/ .woodpecker* .travis.yml .drone.yml .ci/ Jenkinsfile azure-pipelines* bitbucket-pipelines.yml"
    " appveyor.yml cloudbuild.* action.yml action.yaml",
    "editor": ".vscode/ .idea/ .zed/ .fleet/ .devcontainer/ .devcontainer.json *.code-workspace .vimrc .exrc"
    " .nvimrc .nvim.lua .dir-locals.el .envrc .tool-versions mise.toml .mise.toml",
    "agent": ".claude/ .codex/ .gemini/ .cursor/ .opencode/ .ralph/ .agents/ .amp/ .copilot/ .crush/"
    " .factory/ .kimi-code/ .qwen/ .mcp.json opencode.json .aider.conf.yml crush.json .crush.json",
    "build": "package.json .npmrc .yarnrc* .yarn/ .pnpmfile.* pyproject.toml setup.py setup.cfg tox.ini"
    " noxfile.py Makefile makefile GNUmakefile *.mk justfile .justfile Justfile Taskfile.* Rakefile Gemfile"
    " build.rs .cargo/ build.gradle* settings.gradle* gradlew* gradle/ pom.xml .mvn/ mvnw* composer.json"
    " CMakeLists.txt meson.build Dockerfile* docker-compose* compose.yml compose.yaml Vagrantfile"
    " Directory.Build.*",
}
_TESTS = (
    "tests/ test/ __tests__/ spec/ testdata/ __snapshots__/ test_*.* *_test.* *_tests.* *.test.* *.spec.*"
    " *_spec.* *Test.java *Tests.java *Test.kt *Tests.cs *Test.php conftest.py pytest.ini jest.config.*"
    " vitest.config.* playwright.config.* cypress.config.* karma.conf.* phpunit.xml* .rspec"
)


def _pattern(names: str) -> str:
    escaped = [re.escape(name).replace(r"\*", "[^/]*") for name in names.split()]
    return "|".join(name if name.endswith("/") else f"{name}$" for name in escaped)


_KINDS = re.compile(
    "(?:^|/)(?:" + "|".join(f"(?P<{kind}>{_pattern(names)})" for kind, names in _NAMES.items()) + ")"
)

_IS_TEST = re.compile(f"(?:^|/)(?:{_pattern(_TESTS)})")


class ChangedFile(NamedTuple):
    """A changed file: its path, its modes before and after, and the id of its content."""

    path: str
    before: str
    after: str
    oid: str


class Touch(NamedTuple):
    """A change of what another program runs.

    Attributes:
        path: the file.
        kind: git, hooks, ci, editor, agent, build, tests, executable (the file has become so), symlink (it
            leads out of the repository or into ``.git``), or gitlink (a repository of its own, which
            ``.gitmodules`` does not name).

    """

    path: str
    kind: str


def changed_file(path: str, entry: str) -> ChangedFile:
    """Return a changed file from an entry of ``git diff-tree --raw`` (git-diff-tree(1))."""
    before, after, _, oid, _ = entry.lstrip(":").split(" ")
    return ChangedFile(path, before, after, oid)


def touches_of(
    objects: Git,
    changed: Mapping[str, Sequence[ChangedFile]],
    after: Mapping[str, str],
    *,
    tests: bool = False,
) -> dict[str, tuple[Touch, ...]]:
    """Return for each name the changes of what other programs run, in the order of their paths.

    Git runs only if there is a symlink or a gitlink among the changes.

    Arguments:
        objects: git in a shadow git directory.
        changed: changed files by any name.
        after: the commit or tree with the changes, by the same names.
        tests: name changed tests, too.

    """
    links = {file.oid for files in changed.values() for file in files if file.after == _LINK}
    targets = small_contents(objects, links, _LONGEST_TARGET) if links else {}
    require_objects(objects, targets)
    touches = {
        name: tuple(_touches(files, targets, _new_gitlinks(objects, files, after[name])))
        for name, files in changed.items()
    }
    return touches if tests else {name: without_tests(found) for name, found in touches.items()}


def without_tests(touches: Iterable[Touch]) -> tuple[Touch, ...]:
    """Return changes without those of tests."""
    return tuple(touch for touch in touches if touch.kind != TESTS)


def _new_gitlinks(objects: Git, files: Iterable[ChangedFile], after: str) -> tuple[str, ...]:
    added = [file.path for file in files if file.after == GITLINK != file.before]
    return unnamed(objects, after, added) if added else ()


def _touches(
    files: Iterable[ChangedFile], targets: Mapping[str, bytes], gitlinks: Sequence[str]
) -> Iterable[Touch]:
    for file in sorted(files):
        if kind := _kind(file, targets, gitlinks):
            yield Touch(file.path, kind)


def _kind(file: ChangedFile, targets: Mapping[str, bytes], gitlinks: Sequence[str]) -> str:
    if file.path in gitlinks:
        return "gitlink"
    if found := _KINDS.search(file.path):
        return str(found.lastgroup)
    if file.after == _EXECUTABLE and file.before != _EXECUTABLE:
        return "executable"
    if file.after == _LINK and _leads_out(file.path, targets.get(file.oid)):
        return "symlink"
    return TESTS if _IS_TEST.search(file.path) else ""


def _leads_out(path: str, target: bytes | None) -> bool:
    if target is None:  # missing, or too long for a path
        return True
    joined = posixpath.join(posixpath.dirname(path), target.decode("utf-8", "surrogateescape"))
    return f"{posixpath.normpath(joined)}/".startswith(("/", "../", ".git/"))
