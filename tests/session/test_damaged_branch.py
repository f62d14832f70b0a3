"""A commit of the session's branch is gone: the report names the branch all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo

_COMMITS = "for n in 1 2 3; do git commit -q --allow-empty -m $n; done; "
_DELETE = (
    'o=$(git rev-parse {}); rm -f "$(git rev-parse --git-common-dir)/objects/$(echo $o | cut -c1-2)/'
    '$(echo $o | cut -c3-)"'
)


@pytest.mark.parametrize("lost", ["HEAD", "HEAD~"])
def test_the_report_names_the_branch(repo: Repo, lost: str) -> None:
    """Its commits cannot be counted, which is not the same as no branch."""
    script = _COMMITS + _DELETE.format(lost)
    ended = run(repo.path, "-n", "1", "--log-format", "text", "--", "sh", "-c", script)
    branch = f"ralph/{ended.report['id']}"
    assert (ended.report["branch"], ended.report["commits"]) == (branch, None)
    assert f"{branch}, whose commits cannot be counted" in ended.stderr
