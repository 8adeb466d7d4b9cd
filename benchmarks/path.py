# SPDX-License-Identifier: GPL-2.0-or-later
"""A path of three switches: bare frames with and without loss, and a transfer over csa_ud."""

from __future__ import annotations

import json
import os

from benchmarks.traffic import (
    RECEIVER_CPU,
    SENDER_CPU,
    BareTraffic,
    first_switch,
    lab_of,
    set_faults,
)
from softroce_lab.errors import RunError
from softroce_lab.experiment import real, spec
from softroce_lab.experiment.demo import DEPTH
from softroce_lab.experiment.hosts.settings import HostOptions
from softroce_lab.fabric.lab import Lab
from softroce_lab.faults import profile
from softroce_lab.faults.resolve import arm
from softroce_lab.inputs import yaml_source


def measure(short: bool) -> dict[str, float]:
    """Frames a second that come to the first spine link, and the goodput of csa_ud, bytes."""
    with lab_of("path") as lab:
        traffic = BareTraffic(lab, 0.1 if short else 0.5)
        _, port = first_switch(lab.plan)
        switch = traffic.met_per_s(port)
        set_faults(lab, arm(lab.plan, profile.load("spine-loss-1pct")).faults)
        loss = traffic.met_per_s(port)
        set_faults(lab)
        goodput = _transfer_bytes_per_s(lab, (8 if short else 256) << 20)
    return {
        "switch_frames_per_s": switch,
        "loss_frames_per_s": loss,
        "loss_over_switch": loss / switch,
        "csa_ud_bytes_per_s": goodput,
    }


def _transfer_bytes_per_s(lab: Lab, size: int) -> float:
    """Of a file of zeros in memory, hosts and ICRCs and all. RunError if the run fails."""
    with open(os.memfd_create("payload"), "wb") as payload:  # noqa: PTH123
        payload.truncate(size)
        path = f"/proc/{os.getpid()}/fd/{payload.fileno()}"
        document = {
            "name": "path", "topology": "path", "transports": ["csa_ud"], "depth": DEPTH,
            "workload": {"kind": "file", "path": path, "from": "h1", "to": "h2"},
            "payload": "none", "clock": "real", "deadline": "600s",
        }  # fmt: skip
        experiment = spec.of(yaml_source.parse(json.dumps(document)))
        pinned = HostOptions(cpus=(SENDER_CPU, RECEIVER_CPU))
        seed, transport = experiment.seeds[0], experiment.transports[0]
        done = real.run(experiment, transport, seed, lambda _: None, lab, pinned)
    if done.reasons:
        raise RunError(f"csa_ud: {done.reasons[0]}")
    return done.goodput_bps / 8
