"""Find the modules of this package, and their bytecode, in the one place where each can be.

Python reads the folder of a module, tries each suffix, and computes and checks the same paths several times.
That takes 50 us a module, and a session loads 150 of ours. As in any import, bytecode counts if it has the
time and the size of its source. Whatever is not found here is left to Python.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_BEGIN = MAGIC_NUMBER + bytes(4)  # of bytecode; the time and the size of its source follow (PEP 552)
_, _, _SUFFIX = cache_from_source("/module.py").rpartition("/module")


def install() -> None:
    """Find the modules of this package by a :class:`ModuleFinder` from now on."""
    sys.meta_path.insert(0, ModuleFinder(__name__.partition(".")[0]))


class ModuleFinder:
    """Finds the modules of one package.

    Arguments:
        package: its name.

    """

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; ``None`` if it is not found, or belongs to another package."""
        if not path or not fullname.startswith(self._prefix):
            return None
        name = fullname.rpartition(".")[2]
        for folder, stem in ((path[0], name), (f"{path[0]}/{name}", "__init__")):
            try:
                loader = BytecodeLoader(fullname, folder, stem)
            except OSError:
                continue
            spec = ModuleSpec(fullname, loader, origin=loader.path, is_package=stem == "__init__")
            if spec.submodule_search_locations is not None:
                spec.submodule_search_locations.append(folder)
            spec.has_location, spec.cached = True, loader.bytecode
            return spec
        return None


class BytecodeLoader(SourceFileLoader):
    """Loads a module from its bytecode, or from its source if there is none that belongs to it.

    Arguments:
        fullname: of the module.
        folder: that of its source.
        stem: the name of its source, without ``.py``.

    Raises:
        OSError: there is no such source.

    """

    def __init__(self, fullname: str, folder: str, stem: str) -> None:
        super().__init__(fullname, f"{folder}/{stem}.py")
        self.bytecode = f"{folder}/__pycache__/{stem}{_SUFFIX}"
        source = os.stat(self.path)  # noqa: PTH116 -- pathlib is not loaded yet
        numbers = (int(source.st_mtime), source.st_size)
        self._begin = _BEGIN + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module."""
        try:
            descriptor = os.open(self.bytecode, os.O_RDONLY)
            try:
                content = os.read(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
        except OSError:
            content = b""
        if not content.startswith(self._begin):
            return super().get_code(fullname)
        code: CodeType = marshal.loads(content[len(self._begin) :])  # noqa: S302 -- Python would do the same
        return code
