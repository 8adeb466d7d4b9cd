# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows of transports that cannot act: the congestion window never reaches them."""

from __future__ import annotations

from softroce_lab import units
from softroce_lab.experiment.forecast import base_rtt
from softroce_lab.experiment.hosts.settings import path_mtu_bytes
from softroce_lab.experiment.spec import Experiment
from softroce_lab.recovery.defaults import MACHINE_RTT_NS


def notes(experiment: Experiment) -> list[str]:
    """A line for each."""
    chosen = {each.label: each.knobs.window for each in experiment.used_transports}
    if not any(chosen.values()):
        return []
    plan = experiment.plan(experiment.seeds[0])
    path_mtu = path_mtu_bytes(plan.mtu, 4)
    machine_ns = MACHINE_RTT_NS if experiment.clock == "real" else 0
    most = base_rtt.of(plan, path_mtu).window_packets(path_mtu, machine_ns=machine_ns)
    return [
        f"{label}: a window of {units.format_count(window, 'packet')} has no effect, the congestion"
        f" window has {most:,} at most"
        for label, window in chosen.items()
        if window is not None and window >= most
    ]
