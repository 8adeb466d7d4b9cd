# SPDX-License-Identifier: GPL-2.0-or-later
"""What is pinned in a BPF file system: seen while anybody holds it, and not longer."""

import time

import pytest

from softroce_lab.fabric.bpf import bpffs, libbpf
from softroce_lab.fabric.bpf.bpffs import BpfObjects
from softroce_lab.fabric.mounted import mount, unmount
from tests.labs import eventually


@pytest.fixture
def mounted(tmp_path):
    path = tmp_path / "bpf"
    mount(path, "bpf", "test")
    yield path
    unmount(path, "bpf", "test")


def test_what_is_pinned_is_found_and_lives_until_it_is_let_go(mounted):
    with libbpf.probe_program() as program, libbpf.probe_map(2, 4, 4, 1) as table:
        libbpf.pin(program, mounted / "program")
        libbpf.pin(table, mounted / "table")
    found = bpffs.pinned(mounted)
    assert (len(found.programs), len(found.maps)) == (1, 1)
    assert found.living() == found
    (mounted / "program").unlink()
    left = BpfObjects(maps=found.maps)
    assert eventually(lambda: found.living() == left)
    assert str(left) == f"map {min(found.maps)}"
    (mounted / "table").unlink()
    assert not bpffs.await_freed(found, 30)


def test_waiting_ends(mounted):
    with libbpf.probe_map(2, 4, 4, 1) as table:
        libbpf.pin(table, mounted / "table")
        found = bpffs.pinned(mounted)
        begun = time.monotonic()
        assert bpffs.await_freed(found, 0.1) == found
        assert time.monotonic() - begun < 30
