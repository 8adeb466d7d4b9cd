# SPDX-License-Identifier: GPL-2.0-or-later
"""Transfers of a file between the ends of a path, on the real clock, as samples of speed.

The file is not hashed; hosts and ICRCs are those of any run. Sender and receiver have a core each.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from softroce_lab.bench.bare_traffic import RECEIVER_CPU, SENDER_CPU
from softroce_lab.bench.samples import Sample
from softroce_lab.errors import RunError
from softroce_lab.experiment import real, spec
from softroce_lab.experiment.demo import DEPTH
from softroce_lab.experiment.hosts.settings import HostOptions
from softroce_lab.experiment.spec import Experiment
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.fabric.lab import Lab
from softroce_lab.inputs import yaml_source
from softroce_lab.plan.plan import Node

TRANSFER_BYTES = 256 << 20


class Transfers:
    """Of one size, in one lab, from its first host to its last."""

    def __init__(self, lab: Lab, payload: Path, size: int) -> None:
        self._lab, self._size = lab, size
        self._source = lab.plan.hosts[0]
        self._experiment = _experiment(self._source, lab.plan.hosts[-1], payload)

    def sample(self, transport: Transport) -> Sample:
        """Transfer the file once. RunError if the run fails."""
        (seed,) = self._experiment.seeds
        pinned = HostOptions(cpus=(SENDER_CPU, RECEIVER_CPU))
        done = real.run(self._experiment, transport, seed, lambda _: None, self._lab, pinned)
        if done.reasons:
            raise RunError(f"{transport.label}: {done.reasons[0]}")
        packets = done.counters[self._source.name]["tx_data"]
        rate = done.goodput_bps
        return Sample(packets * rate / (8 * self._size), rate)


@contextlib.contextmanager
def payload_of(size: int) -> Iterator[Path]:
    """A file of so many zeros in memory, as long as the context lasts."""
    with open(os.memfd_create("payload"), "wb") as payload:  # noqa: PTH123
        payload.truncate(size)
        yield Path(f"/proc/{os.getpid()}/fd/{payload.fileno()}")


def _experiment(source: Node, destination: Node, path: Path) -> Experiment:
    document = {
        "name": "path",
        "topology": "path",
        "transports": ["csa_ud"],
        "workload": {
            "kind": "file", "path": str(path), "from": source.name, "to": destination.name,
        },
        "depth": DEPTH,
        "payload": "none",
        "clock": "real",
        "deadline": "600s",
    }  # fmt: skip
    return spec.of(yaml_source.parse(json.dumps(document)))
