# SPDX-License-Identifier: GPL-2.0-or-later
"""A program of Debian 12 or 13 runs on the libraries: their symbols and structures are Debian's.

Digests stand for the lists; where one differs, the test that downloads Debian's packages shows how.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab import paths
from tests.programs import debian
from tests.programs.debian import exported, of_headers

NATIVE = Path(__file__).resolve().parents[2] / "native/verbs"
HEADERS = Path("/usr/include/rdma/rdma_cma.h")
LISTS = {"libibverbs": "symbols.txt", "librdmacm": "rdmacm/symbols.txt"}
GREW = {  # since Debian 12, by this member; the library writes no more than asked for
    "ibv_port_attr": "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex": "ibv_qp_ex.wr_flush",
}
DIGESTS = {
    "layout": "656bce29aa7f11ab",
    "libibverbs": "bf3a9b3075787911",
    "librdmacm": "9e65496e6767d1af",
}


def digest(rows):
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()[:16]


def fixed(layout):
    """What Debian 12 and 13 have at the same place."""
    return {name: at for name, at in layout.items() if name not in {*GREW, *GREW.values()}}


def listed(name):
    """(symbol, node, whether new programs get it) of our list."""
    sys.path.insert(0, str(NATIVE))
    try:
        import generate
    finally:
        sys.path.pop(0)
    rows = generate.read(NATIVE / LISTS[name])
    return {(symbol, node, kind != "old") for symbol, node, kind in rows}


needs_headers = pytest.mark.skipif(not HEADERS.exists(), reason="needs librdmacm-dev")


@needs_headers
def test_the_structures_that_it_is_built_with_are_debians():
    here = fixed(of_headers())
    assert len(here) == 853
    assert digest(here.items()) == DIGESTS["layout"]


@pytest.mark.parametrize("name", LISTS)
def test_the_library_has_debians_name_and_symbols(pair, name):
    library = paths.verbs_library().with_name(f"{name}.so.1")
    assert digest(listed(name)) == DIGESTS[name]
    assert exported(library) == listed(name)
    shown = subprocess.run(["readelf", "--dynamic", library], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    assert f"Library soname: [{name}.so.1]" in shown


@needs_headers
@pytest.mark.parametrize("release", debian.PACKAGES)
def test_debians_packages_have_the_same(release, tmp_path):
    """Downloads them: structures as here, and every symbol is in our list."""
    try:
        root = debian.unpack(release, tmp_path)
    except subprocess.SubprocessError:
        pytest.skip("Debian's archive cannot be reached")
    theirs = of_headers(root / "usr/include")
    assert fixed(theirs) == fixed(of_headers())
    assert digest(fixed(theirs).items()) == DIGESTS["layout"]
    for structure, member in GREW.items():
        last = max(at for each, at in fixed(theirs).items() if each.startswith(f"{structure}."))
        assert last < theirs.get(member, theirs[structure]) <= theirs[structure]
    for name in LISTS:
        [library] = root.glob(f"usr/lib/*/{name}.so.1")
        assert exported(library.resolve()) - listed(name) == set()
