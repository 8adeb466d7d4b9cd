# SPDX-License-Identifier: GPL-2.0-or-later
"""Packet-hops of the virtual clock: a permutation of 2 MB messages on 128, 1024 and 4096 hosts.

A hop is one packet, data or control, over one link of 100 Gbit/s, with path MTU 4096. The CPU time
is from the first post to the last result, Python included; building the fabric is left out.
"""

from __future__ import annotations

import time

from softroce_lab.errors import RunError
from softroce_lab.experiment import spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry import memory

SHAPES = {
    16: "kind: fat-tree, k: 4",
    128: "kind: fat-tree, k: 8",
    1024: "kind: fat-tree, k: 16",
    4096: "kind: clos, pods: 16, leaves: 16, hosts: 16",
}
CASES = (
    *((128, name) for name in ("csa_ud", "irn", "rc", "ud_rto", "sdr_sr")),
    *((hosts, name) for hosts in (1024, 4096) for name in ("csa_ud", "rc")),
)
_EXPERIMENT = """
name: benchmark
topology:
  generator: {{{shape}, access: {wire}, core: {wire}}}
lb: flow
mtu: 4300
transports: [{transport}]
workload: {{kind: permutation, bytes: 2MB, message: 2MB}}
deadline: 10s
"""
_WIRE = "{rate: 100Gbit limit 100000, delay: 500ns}"


def _hops_per_cpu_s(hosts: int, transport: str) -> float:
    text = _EXPERIMENT.format(shape=SHAPES[hosts], wire=_WIRE, transport=transport)
    loaded = spec.of(yaml_source.parse(text))
    run = VirtualRun(loaded, loaded.transports[0], 1, lambda _: None)
    began = time.process_time()
    found = run.go()
    spent = time.process_time() - began
    if found.reasons:
        raise RunError(f"{transport} on {hosts} hosts: {found.reasons[0]}")
    return float(run.fabric.native.hops / spent)


def measure(short: bool) -> dict[str, float]:
    """Hops a second of CPU, and the most memory of all."""
    cases = ((16, "csa_ud"), (16, "rc")) if short else CASES
    found = {f"{name}_{hosts}_hops_per_cpu_s": _hops_per_cpu_s(hosts, name)
             for hosts, name in cases}  # fmt: skip
    return found | {"peak_memory_bytes": memory.peak_bytes()}
