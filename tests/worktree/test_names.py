"""The names of directories that ralph-wrap makes."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from ralph_wrap.worktree import trash
from ralph_wrap.worktree.model import TEMPORARY, WARM, NameForm

FORMS = pytest.mark.parametrize("form", [WARM, TEMPORARY])


@FORMS
def test_a_new_name_fits_its_form(form: NameForm) -> None:
    """A later process knows by the name what the worktree was for."""
    name = form.new()
    assert form.fits(name)
    assert fnmatchcase(name, form.pattern)


@FORMS
def test_no_two_names_are_the_same(form: NameForm) -> None:
    """Several processes make worktrees at the same time."""
    assert form.new() != form.new()


@pytest.mark.parametrize(
    ("name", "warm", "temporary"),
    [
        ("warm-0123abcd", True, False),
        ("land-0123abcd", False, True),
        ("land-0123ABCD", False, False),
        ("land-0123abc", False, False),
        ("land-0123abcd0", False, False),
        ("land-0123abcd\n", False, False),
        ("my-land-0123abcd", False, False),
        ("land-mine", False, False),
    ],
)
def test_a_name_fits_one_form_or_none(name: str, warm: bool, temporary: bool) -> None:
    """A worktree of the user's may have nearly the same name."""
    assert (WARM.fits(name), TEMPORARY.fits(name)) == (warm, temporary)


def test_a_new_name_in_the_trash_is_recognised() -> None:
    """A later process deletes only what has such a name."""
    assert trash.is_name(trash.new_name())


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("20260714T093005Z-3f9a", True),
        ("20260714T093005Z-3f9a.leaving", False),
        ("3f9a", False),
        ("notes", False),
    ],
)
def test_the_trash_knows_its_names(name: str, known: bool) -> None:
    """They have the form of a session id, and many are one."""
    assert trash.is_name(name) == known
