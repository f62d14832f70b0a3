"""Names after tasks: words that say something, and nothing that a branch or a directory cannot be called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.commands.worktree.branch_name import LONGEST, branch_name, slug
from ralph_wrap.errors import UsageError
from tests.support.repo import Repo
from tests.support.trees import located


@pytest.mark.parametrize(
    ("task", "made"),
    [
        ("Fix the authentication bug in login", "fix-authentication-bug-login"),
        ("Add dark mode toggle to settings", "add-dark-mode-toggle-settings"),
        ("REQ-123: Improve performance", "req-123-improve-performance"),
    ],
)
def test_the_documented_examples(task: str, made: str) -> None:
    """As the original's page has them."""
    assert slug(task) == made


@pytest.mark.parametrize(
    ("task", "made"),
    [
        ("a an the in on at to of for and or with from by into x", "x"),
        ("THE Theme", "theme"),
        ("Größe ändern", "grosse-andern"),
        ("修复 登录", "xiu-fu-deng-lu"),
        ("A/B_test v1.2", "b-test-v1-2"),
        ("../../etc/passwd", "etc-passwd"),
        ("two\nlines", "two-lines"),
        ("--force it", "force-it"),
        ("\udcff byte", "byte"),
        ("x" * 60, "x" * 50),
        ("ninewords " * 6, "ninewords-ninewords-ninewords-ninewords-ninewords"),
        (f"{'ninewords ' * 4}tenletters", "ninewords-ninewords-ninewords-ninewords-tenletters"),
        (f"{'ninewords ' * 4}tenletterss", "ninewords-ninewords-ninewords-ninewords"),
        (f"{'the ' * 50}end", "end"),
    ],
)
def test_a_slug(task: str, made: str) -> None:
    """ASCII, lower case, no stop words, cut at a word."""
    assert slug(task) == made


@pytest.mark.parametrize("task", ["", " ", "the of", "🚀", "...", "\udcff"])
def test_nothing_left_is_a_mistake(task: str) -> None:
    """A branch needs a name."""
    with pytest.raises(UsageError):
        slug(task)


@given(st.text())
def test_a_slug_is_always_a_name(task: str) -> None:
    """Whatever the task."""
    try:
        made = slug(task)
    except UsageError:
        return
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", made)
    assert len(made) <= LONGEST


@pytest.mark.parametrize("prefix", ["quick-build", "ralph", "v1.2", "größe", "a_b"])
def test_a_prefix_is_taken_as_it_is(repo: Repo, prefix: str) -> None:
    """Git decides on what is odd."""
    where, _ = located(repo)
    assert branch_name(where, prefix, "fix-it") == f"{prefix}-fix-it"


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "",
            "a/b",
            "/",
            "..",
            "a..b",
            ".a",
            "-a",
            "--force",
            "a\tb",
            "a\x07",
            "a\n",
            "a b",
            "a~",
            "a*",
            "a.lock",
        ),
        *("a@{", "a\\b", "a.", "x" * 300),
    ],
)
def test_what_cannot_begin_a_name_is_a_mistake(repo: Repo, prefix: str) -> None:
    """Of a branch, or of a directory."""
    where, _ = located(repo)
    with pytest.raises(UsageError):
        branch_name(where, prefix, "fix-it")
