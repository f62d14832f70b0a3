"""Object ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.git.oid import is_oid, oids_in

SHA1 = "0123456789abcdef0123456789abcdef01234567"
SHA256 = "0123456789abcdef" * 4
OIDS = st.sampled_from([40, 64]).flatmap(
    lambda length: st.text("0123456789abcdef", min_size=length, max_size=length)
)


@given(OIDS)
def test_a_whole_id_is_one(oid: str) -> None:
    """Of either of git's two algorithms."""
    assert is_oid(oid)


@pytest.mark.parametrize(
    "text",
    [
        *("", "HEAD", SHA1[:12], SHA1[:-1], f"{SHA1}0", SHA256[:-1], f"{SHA256}0", SHA1.upper()),
        *(f"{SHA1}\n", f" {SHA1}", "g" * 40, "\u0660" * 40),
    ],
)
def test_anything_else_is_none(text: str) -> None:
    """Git would take the beginning of an id for any object that begins so."""
    assert not is_oid(text)


@given(st.lists(OIDS))
def test_all_ids_of_a_reflog_are_found(oids: list[str]) -> None:
    """Also the last one of a file that ends without a newline."""
    log = "\n".join(f"{oid} A U Thor <a@example.com> 1 +0000\tcommit: fix" for oid in oids)
    assert oids_in(log.encode()) == {*oids}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (f"ref: refs/heads/{SHA1}\n", {SHA1}),
        (f"{SHA1}{SHA256}", set()),
        (f"x{SHA1}", set()),
        (f"{SHA1[:-1]}\n", set()),
    ],
)
def test_an_id_is_a_word(content: str, found: set[str]) -> None:
    """Part of a longer word is none."""
    assert oids_in(content.encode()) == found


def test_bytes_that_are_no_text_hide_nothing() -> None:
    """A file in a registration may be anything."""
    assert oids_in(b"\xff\n%b\n" % SHA1.encode()) == {SHA1}
