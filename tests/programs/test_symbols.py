# SPDX-License-Identifier: GPL-2.0-or-later
"""The libraries' symbols are those of Debian 12's and 13's own, by name and version."""

import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab import paths
from tests.programs import debian
from tests.programs.debian import exported

ROOT = Path(__file__).resolve().parents[2]


LISTS = {"libibverbs": "symbols.txt", "librdmacm": "rdmacm/symbols.txt"}


def ours(name):
    return paths.verbs_library().with_name(f"{name}.so.1")


@pytest.mark.parametrize("release", debian.PACKAGES)
@pytest.mark.parametrize(("name", "least"), [("libibverbs", 150), ("librdmacm", 60)])
def test_every_symbol_of_debians_is_there(pair, release, name, least):
    theirs = debian.symbols(debian.committed(release), name)
    assert len(theirs) > least
    assert theirs - exported(ours(name)) == set()


@pytest.mark.parametrize("release", debian.PACKAGES)
def test_the_lists_are_those_of_debians_packages(release):
    """Downloads them; a point release changes versions, and nothing else."""
    try:
        found = debian.facts(release)
    except subprocess.SubprocessError:
        pytest.skip("Debian's archive cannot be reached")
    of_code = [line for line in found if not line.startswith("package ")]
    assert of_code == [each for each in debian.committed(release) if "package " not in each]


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
