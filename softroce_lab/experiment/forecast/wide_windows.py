# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes on values of the knob `window` that have no effect.

A window has no effect if the congestion window is never larger.
"""

from __future__ import annotations

from softroce_lab import units
from softroce_lab.experiment.forecast import base_rtt
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec import Experiment
from softroce_lab.transports.defaults import MACHINE_RTT_NS


def notes(experiment: Experiment) -> list[str]:
    chosen = [each for each in experiment.used_transports if each.knobs.window is not None]
    if not chosen:
        return []
    plan = experiment.plan(experiment.seeds[0])
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    machine_ns = MACHINE_RTT_NS if experiment.clock == "real" else 0
    fabric = base_rtt.of(plan, path_mtu)
    lines = []
    for each in chosen:
        window = each.knobs.window
        most = fabric.window_packets(path_mtu, one_path=each.one_path, machine_ns=machine_ns)
        if window is not None and window >= most:
            packets = units.format_count(window, "packet")
            what = (
                f"a window of {packets} has no effect, the congestion window has {most:,} at most"
            )
            lines.append(f"{each.label}: {what}")
    return lines
