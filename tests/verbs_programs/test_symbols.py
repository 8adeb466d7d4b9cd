# SPDX-License-Identifier: GPL-2.0-or-later
"""The library's symbols are those of the distribution's own libibverbs, by name and version."""

import re
import subprocess
import sys
from pathlib import Path

from softroce_lab import paths

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("/usr/lib", "/lib")


def exported(library):
    """(name, node, whether new programs get it) of each symbol."""
    shown = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    lines = [line.split() for line in shown.splitlines()]
    names = [words[7] for words in lines if len(words) > 7 and words[6] != "UND"]
    found = [re.fullmatch(r"(\w+)(@@?)([\w.]+)", name) for name in names]
    return {(m[1], m[3], m[2] == "@@") for m in found if m}


def the_distributions_own():
    found = [p for folder in FOLDERS for p in Path(folder).glob("*/libibverbs.so.1")]
    return next(path.resolve() for path in found)


def test_every_symbol_of_the_distributions_is_there(pair):
    ours, theirs = exported(paths.verbs_library()), exported(the_distributions_own())
    assert len(theirs) > 150
    assert theirs - ours == set()


def test_nothing_but_the_list_is_exported(pair):
    sys.path.insert(0, str(ROOT / "native/verbs"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    rows = generate.read(ROOT / "native/verbs/symbols.txt")
    listed = {(name, node, kind != "old") for name, node, kind in rows}
    assert exported(paths.verbs_library()) == listed


def test_its_name_is_that_of_rdma_core(pair):
    shown = subprocess.run(["readelf", "--dynamic", paths.verbs_library()], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    assert "Library soname: [libibverbs.so.1]" in shown
