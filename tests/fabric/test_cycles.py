# SPDX-License-Identifier: GPL-2.0-or-later
"""What comes up and goes down again and again leaves nothing: not here, not in the kernel."""

import gc
import os
from pathlib import Path

import pytest

from softroce_lab.fabric import lab
from softroce_lab.fabric.bpf import bpffs as bpf_objects
from softroce_lab.fabric.bpf.bpffs import BpfObjects
from tests.labs import SETTLE_S

MIB = 1 << 20
WARM_UP = 3  # what a first lab loads for good is there then
# Allowed growth. A lab's maps take over 10 MiB, its namespaces half a MiB: one of either a cycle
# would be far beyond what others do on the machine meanwhile, over 200 cycles.
KERNEL_BYTES = 64 * MIB
PROCESS_BYTES = 8 * MIB
NAMESPACES = 100  # the kernel counts those it keeps at hand for reuse as in use

KERNEL_MEMORY = ("SUnreclaim", "VmallocUsed", "Percpu", "KernelStack", "PageTables")


def fields(path):
    """Bytes by name, of a file of lines such as `Slab:  123 kB`."""
    lines = (line.split() for line in Path(path).read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[2:] == ["kB"]}


def kernel_bytes():
    return sum(fields("/proc/meminfo")[name] for name in KERNEL_MEMORY)


def process_bytes():
    gc.collect()
    return fields("/proc/self/status")["VmRSS"]


def namespaces():
    """How many network namespaces the kernel has, give or take some."""
    for line in Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("net_namespace "):
            return int(line.split()[1])
    pytest.skip("the kernel does not tell how many network namespaces it has")


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.full("cycles")
def test_cycles_leave_nothing_behind(full, two_hosts, traces):
    """Brings a lab up and down 200 times: memory, descriptors, BPF objects, namespaces, files."""
    seen, cycles = BpfObjects(), 200 if full else 2
    for cycle in range(WARM_UP + cycles):
        if cycle == WARM_UP:
            before = kernel_bytes(), process_bytes(), namespaces(), descriptors()
        made = lab.up(two_hosts)
        objects = bpf_objects.pinned(made.bpffs)
        assert objects.programs
        assert objects.maps
        assert not objects.programs & seen.programs, "an id was given out twice"
        seen = BpfObjects(seen.programs | objects.programs, seen.maps | objects.maps)
        made.down()
        left = bpf_objects.await_freed(objects, SETTLE_S)
        assert not left, f"cycle {cycle} left {left}"
        assert traces.found() == [], f"cycle {cycle}"
    assert not seen.living()
    kernel, process, spaces, open_files = before
    assert descriptors() == open_files
    assert process_bytes() - process < PROCESS_BYTES
    if full:  # a few cycles cost less than what others do on the machine meanwhile
        assert kernel_bytes() - kernel < KERNEL_BYTES
        assert namespaces() - spaces < NAMESPACES
