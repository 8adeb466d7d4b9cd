# SPDX-License-Identifier: GPL-2.0-or-later
"""The libraries' symbols are those of the distribution's own, by name and version."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


LISTS = {"libibverbs": "symbols.txt", "librdmacm": "rdmacm/symbols.txt"}


def ours(name):
    return paths.verbs_library().with_name(f"{name}.so.1")


def the_distributions_own(name):
    found = [path for folder in FOLDERS for path in Path(folder).glob(f"*/{name}.so.1")]
    return next(path.resolve() for path in found)


@pytest.mark.parametrize(("name", "least"), [("libibverbs", 150), ("librdmacm", 60)])
def test_every_symbol_of_the_distributions_is_there(pair, name, least):
    theirs = exported(the_distributions_own(name))
    assert len(theirs) > least
    assert theirs - exported(ours(name)) == set()


@pytest.mark.parametrize("name", LISTS)
def test_nothing_but_the_list_is_exported(pair, name):
    sys.path.insert(0, str(ROOT / "native/verbs"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    rows = generate.read(ROOT / "native/verbs" / LISTS[name])
    listed = {(name, node, kind != "old") for name, node, kind in rows}
    assert exported(ours(name)) == listed


@pytest.mark.parametrize("name", LISTS)
def test_its_name_is_that_of_rdma_core(pair, name):
    shown = subprocess.run(["readelf", "--dynamic", ours(name)], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    assert f"Library soname: [{name}.so.1]" in shown
