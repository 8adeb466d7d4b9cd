# SPDX-License-Identifier: GPL-2.0-or-later
"""A Python target by hand, or under atheris.

python -m tests.parser_fuzz.run NAME FILE...               again what was found
python -m tests.parser_fuzz.run NAME --atheris OPTION...   fuzz, with libFuzzer's options
python -m tests.parser_fuzz.run NAME --kept FOLDER         its files again: is memory kept?
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path

from tests.parser_fuzz.catalogue import PLANTED, PYTHON, Target
from tests.parser_fuzz.guard import check_kept, guarded

KEPT_S = 60


def load(target: Target) -> Callable[[bytes], None]:
    """What lets a target have one input."""
    one = importlib.import_module(target.module).one
    return lambda data: guarded(one, data)


def replay(target: Target, files: list[str]) -> None:
    """Let a target have inputs that were saved."""
    one = load(target)
    for file in files:
        one(Path(file).read_bytes())


def find_plainly() -> None:
    """Let the standard finders alone find modules from now on.

    That of an editable installation wraps its loaders, and atheris cannot instrument those: it
    would fuzz blindly.
    """
    importlib.import_module("softroce_lab")  # whose __path__ then leads to what was built, too
    standard = (BuiltinImporter, FrozenImporter, PathFinder)
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in standard]


def fuzz(target: Target, options: list[str]) -> None:
    """Fuzz until libFuzzer's options, or a signal, end it."""
    import atheris  # not everywhere, and only needed here

    find_plainly()
    with atheris.instrument_imports(include=list(target.covered)):
        one = load(target)
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    _, name, *arguments = sys.argv
    chosen = PLANTED if name == PLANTED.name else PYTHON[name]
    if arguments[:1] == ["--atheris"]:
        fuzz(chosen, arguments[1:])
    elif arguments[:1] == ["--kept"]:
        inputs = [path.read_bytes() for path in sorted(Path(arguments[1]).iterdir())]
        print(f"nothing is kept of {check_kept(load(chosen), inputs, KEPT_S)} inputs")
    else:
        replay(chosen, arguments)
