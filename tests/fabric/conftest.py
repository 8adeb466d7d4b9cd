# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of labs that this room's tests use."""

import time

import pytest

from softroce_lab import topology
from softroce_lab.fabric.net import syscalls
from tests.fabric.xdp_rig import Rig
from tests.labs import (  # noqa: F401
    _eventually,
    _killed_at,
    _run_lab,
    foreigner,
    lab_name,
    needs_root,
    traces,
    two_hosts,
)


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory):
    """h1 - s1 - h2, for a module."""
    rig = Rig(topology.load("two-hosts"), "generic", tmp_path_factory.mktemp("xdp"))
    yield rig
    rig.close()


@pytest.fixture
def rig(shared_rig):
    """The same without faults, its counts and its timeline at the beginning."""
    shared_rig.refresh()
    shared_rig.xdp.restart(time.monotonic_ns())
    return shared_rig


@pytest.fixture
def small(tmp_path):
    """A file system of 512 KiB in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    syscalls.mount("small", str(folder), "tmpfs", 0, "size=512k")
    yield folder
    syscalls.umount(str(folder))
