"""The table that classifies the keys of git's configuration."""

from __future__ import annotations

import subprocess

import pytest

from ralph_wrap.git.safe.config_keys import Effect, effect_of

_STANDS_FOR_OTHERS = {
    "bundle.*",
    "bundle.<id>.*",
    "credential.<url>.*",
    "extensions.*",
    "feature.*",
    "hasconfig:remote.*.url",
    "http.<url>.*",
    "sendemail.<identity>.*",
    "sideband.<url>.*",
}
"""The manual describes these for keys that the list names one by one, or that another tool invents."""


def test_each_key_of_the_installed_git_is_classified() -> None:
    """No key that the installed git lists is missing from the table."""
    output = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout
    listed = {line for line in output.split("\n") if line and " " not in line} - _STANDS_FOR_OTHERS
    assert len(listed) > 500
    assert not {key for key in listed if effect_of(key, "x") is Effect.UNKNOWN}


RUNS = (
    ("alias.st", "!evil"),
    ("core.fsmonitor", "./evil"),
    ("CORE.HooksPath", "x"),
    ("core.pager", "less"),
    ("core.sshCommand", "evil"),
    ("credential.helper", "evil"),
    ("credential.https://example.com.helper", "!evil"),
    ("diff.external", "evil"),
    ("diff.x.textconv", "evil"),
    ("filter.a.b.c.process", "evil"),
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("gpg.program", "evil"),
    ("gpg.ssh.program", "evil"),
    ("hook.any.command", "evil"),
    ("lfs.customtransfer.x.path", "evil"),
    ("merge.default", "x"),
    ("merge.x.driver", "evil %A"),
    ("pager.log", "evil"),
    ("protocol.ext.allow", "always"),
    ("remote.origin.receivepack", "evil"),
    ("remote.origin.uploadpack", "evil"),
    ("remote.origin.url", "ext::evil"),
    ("remote.origin.vcs", "x"),
    ("branch.main.remote", "ext::evil"),
    ("submodule.x.update", "!evil"),
    ("tar.x.command", "evil"),
    ("trailer.x.cmd", "evil"),
)
REDIRECTS = (
    ("core.attributesFile", "x"),
    ("core.worktree", "/root"),
    ("extensions.partialClone", "x"),
    ("http.https://example.com.proxy", "x"),
    ("include.path", "x"),
    ("includeIf.gitdir:/a.b/.path", "x"),
    ("remote.origin.promisor", "true"),
    ("remote.origin.pushurl", "elsewhere"),
    ("sendemail.mailmap.file", "x"),
    ("sideband.https://example.com.allowControlCharacters", "true"),
    ("url.https://evil/.insteadOf", "https://good/"),
)
HARMLESS = (
    ("branch.a.b.merge", "refs/heads/main"),
    ("branch.main.remote", "origin"),
    ("core.bare", "false"),
    ("core.fsmonitor", "true"),
    ("core.fsmonitor", None),
    ("fetch.fsck.badDate", "ignore"),
    ("filter.x.required", "true"),
    ("http.https://github.com/.extraheader", "AUTHORIZATION: x"),
    ("merge.default", "union"),
    ("pager.log", "false"),
    ("remote.origin.url", "https://example.com/a.git"),
    ("remote.origin.url", "git@example.com:a.git"),
    ("remote.origin.url", "C:/a::b"),
    ("submodule.x.update", "rebase"),
    ("submodule.x.url", "https://[::1]/a.git"),
)
UNKNOWN = (("ralph.some", "x"), ("filter.x.other", "x"), ("core.other", "x"), ("x", None))


@pytest.mark.parametrize(
    ("key", "value", "effect"),
    [
        (*entry, effect)
        for entries, effect in (
            (RUNS, Effect.RUNS),
            (REDIRECTS, Effect.REDIRECTS),
            (HARMLESS, Effect.HARMLESS),
            (UNKNOWN, Effect.UNKNOWN),
        )
        for entry in entries
    ],
)
def test_a_key_has_its_effect(key: str, value: str | None, effect: Effect) -> None:
    """Section and variable match in any case, a subsection may have dots, some values change the effect."""
    assert effect_of(key, value) is effect
