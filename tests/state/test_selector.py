"""What a text names: an id, a branch, or a title."""

from __future__ import annotations

import re

import pytest

from ralph_wrap.errors import UsageError
from ralph_wrap.state.selector import Candidate, select

LOGIN = Candidate("login", "a3f2", (("a3f2",), ("ralph/login",)), "Fix the login page")
LOGOUT = Candidate("logout", "09be", (("09be",), ("fade",)), "Fix the logout")
SAME = Candidate("same", "b7c1", (("b7c1",), ()), "Fix the logout")
FADE = Candidate("menu", "c0de", (("c0de",), ()), "fade in the menu")


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("a3f2", "login"),
        ("ralph/login", "login"),
        ("fade", "logout"),
        ("Fix the login page", "login"),
        ("FIX THE LOGIN PAGE", "login"),
        ("fix the logi", "login"),
        ("fade in", "menu"),
        ("Fa", None),
        ("the login", None),
        ("", None),
        ("*", None),
    ],
)
def test_a_text_names_one(wanted: str, value: str | None) -> None:
    """By a name first, then by the title, in any case, or by its beginning."""
    assert select(wanted, [LOGIN, LOGOUT, FADE]) == value


def test_a_mistyped_id_is_no_beginning_of_a_title() -> None:
    """Another session would be stopped, or dropped."""
    assert select("fade", [LOGIN, FADE]) is None
    assert select("fade", [LOGIN, FADE._replace(title="fade")]) == "menu"


@pytest.mark.parametrize("wanted", ["Fix the logout", "fix the LOGOUT", "Fix the logo"])
def test_a_title_of_several_is_an_error_that_lists_them(wanted: str) -> None:
    """By their ids, which are the way out."""
    with pytest.raises(UsageError, match=re.escape("09be (Fix the logout); b7c1 (Fix the logout)")) as caught:
        select(wanted, [LOGIN, LOGOUT, SAME])
    assert caught.value.hint == "name one of them by its id"


def test_a_whole_title_wins_over_the_beginning_of_another_one() -> None:
    """It is not ambiguous."""
    longer = LOGIN._replace(value="longer", label="ffff", names=(), title="Fix the logout and more")
    assert select("fix the logout", [longer, LOGOUT]) == "logout"


def test_sessions_with_one_id_are_not_ambiguous() -> None:
    """The first one counts: a later session has the id and the title of an earlier one."""
    earlier = LOGIN._replace(value="earlier")
    assert select("Fix the login page", [LOGIN, earlier]) == "login"


def test_a_message_has_no_control_characters() -> None:
    """An agent can write titles."""
    evil = LOGOUT._replace(title="evil \x1b[2J" + "x" * 100)
    with pytest.raises(UsageError) as caught:
        select("evil", [evil, SAME._replace(title=evil.title)])
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 150
