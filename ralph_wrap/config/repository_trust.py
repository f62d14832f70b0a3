"""What a repository's configuration makes our git run: off, until the user approves exactly these lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ralph_wrap.config import trust
from ralph_wrap.errors import UntrustedError
from ralph_wrap.git import Repository, decode
from ralph_wrap.git.safe.common_dir import SafeCommonDirs, configuration, harmless
from ralph_wrap.git.safe.config_keys import pattern_of
from ralph_wrap.git.safe.entries import ConfigEntry
from ralph_wrap.system import files
from ralph_wrap.system.log import one_line

_ADDRESSES = ("url.*.", "core.sshcommand", "core.gitproxy", "http.", "protocol.", "credential.")
# The other keys that run a program or lead git elsewhere have no effect on a command of ours.
_USED = frozenset(
    {
        "core.askpass",
        "core.attributesfile",
        "core.excludesfile",
        "core.gitproxy",
        "core.sshcommand",
        "credential.helper",
        "diff.*.command",
        "diff.*.textconv",
        "diff.external",
        "filter.*.clean",
        "filter.*.process",
        "filter.*.required",
        "filter.*.smudge",
        "gpg.*.allowedsignersfile",
        "gpg.*.defaultkeycommand",
        "gpg.*.program",
        "gpg.program",
        "http.cookiefile",
        "http.proxy",
        "http.sslcainfo",
        "http.sslcert",
        "http.sslkey",
        "http.sslverify",
        "lfs.*.clean",
        "lfs.*.path",
        "lfs.*.smudge",
        "lfs.pushurl",
        "lfs.storage",
        "lfs.url",
        "merge.*.driver",
        "merge.default",
        "protocol.*.allow",
        "remote.*.proxy",
        "remote.*.pushurl",
        "remote.*.receivepack",
        "remote.*.url",
        "remote.*.vcs",
        "url.*.insteadof",
        "url.*.pushinsteadof",
    }
)


def entries_to_approve(repository: Repository) -> list[ConfigEntry]:
    """Return the entries of a repository's configuration that our git obeys only with the user's approval.

    Raises:
        GitError: the configuration cannot be read.

    """
    return _obeyed(repository.common_dir)


def _obeyed(common_dir: Path) -> list[ConfigEntry]:
    entries = configuration(common_dir)
    without_approval = harmless(entries)
    return [entry for entry in entries if pattern_of(entry.key) in _USED and entry not in without_approval]


def lines_of(entries: list[ConfigEntry]) -> dict[str, list[str | None]]:
    """Return the values of entries by key: the form in which the user approves them."""
    lines: dict[str, list[str | None]] = {}
    for key, value in entries:
        lines.setdefault(key, []).append(value)
    return lines


def is_approved(repository: Repository, entries: list[ConfigEntry], environ: Mapping[str, str]) -> bool:
    """Return whether the user has approved exactly these entries."""
    if trust.implied(environ) is not None:
        return True
    return trust.is_approved(trust_root(repository), lines_of(entries), environ, trust.REPOSITORY)


def approved_keys(common_dir: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the keys whose lines the user has approved exactly as they are; ``RALPH_TRUST`` does not count.

    Raises:
        RalphError: the configuration cannot be read, or the directory of approvals is inside the project.

    """
    entries = _obeyed(common_dir)
    approved = entries and trust.is_approved(
        _root_of(common_dir), lines_of(entries), environ, trust.REPOSITORY
    )
    return frozenset(entry.key for entry in entries) if approved else frozenset()


def trust_root(repository: Repository) -> Path:
    """Return the directory that names a repository in its approval: the main checkout, if it has one."""
    return _root_of(repository.common_dir)


def _root_of(common_dir: Path) -> Path:
    return common_dir.parent if common_dir.name == ".git" else common_dir


def safe_common_dirs(repository: Repository, environ: Mapping[str, str]) -> SafeCommonDirs:
    """Return the directories that stand in for a repository, with the programs that the user has approved."""
    entries = entries_to_approve(repository)
    if entries and is_approved(repository, entries, environ):
        return SafeCommonDirs(environ, repository.common_dir, checkout=repository.root, approved=entries)
    return SafeCommonDirs(environ, repository.common_dir, checkout=repository.root, off=entries)


def require_direct(safe: SafeCommonDirs | None, remote: str) -> None:
    """Check that the repository's configuration does not lead a push elsewhere without the user's approval.

    Raises:
        UntrustedError: it does. Without these keys the push may go to an address that the user does not mean.

    """
    keys = [
        entry.key
        for entry in (safe.off if safe else ())
        if entry.key.startswith(f"remote.{remote}.") or pattern_of(entry.key).startswith(_ADDRESSES)
    ]
    if keys:
        raise UntrustedError(
            f"a push to {remote} obeys {', '.join(dict.fromkeys(map(one_line, keys)))} of .git/config,"
            " which you have not approved",
            "to see and approve: ralph-wrap trust",
        )


def consequences(entries: Sequence[ConfigEntry], checkout: Path, common_dir: Path) -> list[str]:
    """Return what it means that entries are off, one clause for each kind.

    Arguments:
        checkout: a checkout, whose ``.gitattributes`` name the paths of filters and drivers.

    """
    attributes = [*_attributes(checkout / ".gitattributes"), *_attributes(common_dir / "info/attributes")]
    found = []
    for key, _ in entries:
        section, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if section == "filter":
            paths = _paths(attributes, f"filter={name}")
            stays = "an LFS pointer" if name == "lfs" else "as git stores it"
            found.append(f"{paths or 'each file of the filter'} stays {stays}")
        elif section == "merge":
            paths = _paths(attributes, f"merge={name}")
            found.append(f"git merges {paths or 'the files of the driver'} as text")
        elif pattern_of(key) == "core.excludesfile":
            found.append("sessions save the files that it ignores")
    return list(dict.fromkeys(found))


def _attributes(path: Path) -> list[list[str]]:
    try:
        lines = decode(files.read(path)).splitlines()
    except OSError:
        return []
    return [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _paths(attributes: Sequence[Sequence[str]], wanted: str) -> str:
    """Return the patterns of paths that have an attribute."""
    return ", ".join(dict.fromkeys(words[0] for words in attributes if wanted in words[1:]))
