"""The finder of our modules: it finds what Python finds, and never runs old code."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from importlib.machinery import PathFinder
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.module_finder import ModuleFinder
from tests.support.package_modules import PACKAGE, modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def _folders() -> Iterator[tuple[str, str]]:
    """Yield the full name and the folder of each of our modules."""
    for module in modules():
        parts = module.parts[:-1] if module.parts[-1] == "__init__" else module.parts
        if parts:
            yield ".".join((PACKAGE.name, *parts)), os.fspath(PACKAGE.joinpath(*parts).parent)


def test_it_finds_what_python_finds() -> None:
    """All that a module tells about itself is the same."""
    found = list(_folders())
    assert found
    for name, folder in found:
        ours = ModuleFinder("ralph_wrap").find_spec(name, [folder])
        assert _facts(ours) == _facts(PathFinder.find_spec(name, [folder]))


def _facts(spec: Any) -> tuple[object, ...]:
    paths = (spec.origin, spec.cached, spec.submodule_search_locations, spec.has_location, spec.parent)
    return (*paths, spec.loader.is_package(spec.name), spec.loader.get_code(spec.name))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("json", None),
        ("other.module", ["."]),
        ("ralph_wrap", None),
        ("ralph_wrap.none", [os.fspath(PACKAGE)]),
    ],
)
def test_the_rest_is_left_to_python(name: str, path: list[str] | None) -> None:
    """Modules of others, the package itself, and what is not there."""
    assert ModuleFinder("ralph_wrap").find_spec(name, path) is None


def _value(folder: Path) -> int:
    """Return what the module ``sample.module`` in this folder says."""
    spec = ModuleFinder("sample").find_spec("sample.module", [os.fspath(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value: int = module.VALUE
    return value


def _write(folder: Path, text: str, *, time: int = 1_000_000_000) -> Path:
    source = folder / "module.py"
    source.write_text(text)
    os.utime(source, (time, time))
    return source


def _compile(folder: Path, mode: PycInvalidationMode = PycInvalidationMode.TIMESTAMP) -> Path:
    """Compile a first version, write a second one over it, and return the bytecode of the first."""
    compiled = py_compile.compile(os.fspath(_write(folder, "VALUE = 1")), invalidation_mode=mode)
    assert compiled is not None
    _write(folder, "VALUE = 2")
    return Path(compiled)


def test_bytecode_is_used(tmp_path: Path) -> None:
    """That of another source with the same time and size runs, as in any import."""
    _compile(tmp_path)
    assert _value(tmp_path) == 1


def _replace_by_directory(bytecode: Path) -> None:
    bytecode.unlink()
    bytecode.mkdir()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: _write(path.parent.parent, "VALUE = 2", time=1_000_000_001), id="time"),
        pytest.param(lambda path: _write(path.parent.parent, "VALUE = 2 "), id="size"),
        pytest.param(Path.unlink, id="no bytecode"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"other" + path.read_bytes()[5:]), id="of another Python"),
        pytest.param(_replace_by_directory, id="a directory"),
    ],
)
def test_other_bytecode_is_not_used(change: Callable[[Path], object], tmp_path: Path) -> None:
    """The present source runs."""
    change(_compile(tmp_path))
    assert _value(tmp_path) == 2


def test_bytecode_with_a_hash_is_checked_by_python(tmp_path: Path) -> None:
    """Time and size of its source say nothing then."""
    _compile(tmp_path, PycInvalidationMode.CHECKED_HASH)
    assert _value(tmp_path) == 2
