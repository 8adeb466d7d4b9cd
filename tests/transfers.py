# SPDX-License-Identifier: GPL-2.0-or-later
"""A file over a lab that is up: as a run of an experiment, or by host processes one by one."""

import json
import time

from softroce_lab.experiment import real, spec
from softroce_lab.experiment.hosts import processes
from softroce_lab.experiment.hosts.settings import WorkloadSettings, packed
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.workloads.file import FileTransfer

MESSAGE_BYTES, DEPTH = 1 << 20, 2


def send(lab, topology, path, source, destination, transport="csa_ud", seed=1):
    """The run of a file's transfer."""
    document = {
        "name": lab.plan.name,
        "topology": topology,
        "transports": [transport],
        "workload": {"kind": "file", "path": str(path), "from": source, "to": destination},
        "depth": DEPTH,
        "clock": "real",
        "deadline": "600s",
    }
    experiment = spec.of(yaml_source.parse(json.dumps(document)))
    return real.run(experiment, experiment.transports[0], seed, lambda _: None, lab)


def pair(lab, transport):
    """Processes of the hosts h1 and h2."""
    epoch_ns = time.monotonic_ns()
    nodes = [lab.plan.node("h1"), lab.plan.node("h2")]
    return [host_process(lab, node, transport, epoch_ns) for node in nodes]


def host_process(lab, node, transport, epoch_ns=0):
    """A host's process."""
    used = Transport.named(transport)
    return processes.HostHandle(lab, node, used, on_machine(used, lab.plan), epoch_ns, 7)


def prepare(both, path, size_bytes, *, hashed=True):
    """Let the first host send a file to the second as soon as both begin."""
    transfer = FileTransfer((0, 1), str(path), size_bytes, MESSAGE_BYTES, DEPTH, None, hashed)
    text = packed(transfer)
    tasks = {number: WorkloadSettings(number, text, 1, DEPTH) for number in (0, 1)}
    processes.prepare(dict(enumerate(both)), tasks)
