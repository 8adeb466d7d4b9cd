# SPDX-License-Identifier: GPL-2.0-or-later
"""A capture of 128 bytes of each frame: what it misses, and what it costs.

At 100,000 frames a second, and of a flood, which is measured with and without a capture.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.traffic import BareTraffic, cpu_s, data_frame, lab_of, open_port, send_paced
from softroce_lab.errors import RunError
from softroce_lab.experiment.capturing import links_of
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe.capture import Capture
from softroce_lab.telemetry import capture_file

PACE = 100_000.0  # frames a second
SNAP_BYTES = 128  # all headers
_SETTLE_S = 0.1  # for the last frames


def measure(short: bool) -> dict[str, float]:
    """Frames missed, CPU time of the monitor a frame, and what a capture costs a flood."""
    count = 10_000 if short else 500_000
    with (
        lab_of("two-hosts") as lab,
        tempfile.TemporaryDirectory(prefix="softroce-benchmark-") as folder,
    ):
        path = Path(folder) / "paced.pcapng"
        port = open_port(lab, lab.plan.hosts[-1])  # takes the frames; nobody reads them
        port.insert_into(str(lab.bpffs / "xsks"))
        with _capturing(lab, path) as running:
            before_s = cpu_s(lab, "monitor")
            if (sent := send_paced(lab, data_frame(lab, 1024), count, PACE)) != count:
                raise RunError(f"only {sent} of {count} frames could be sent")
            time.sleep(_SETTLE_S)
            missed = running.end().missed
            spent_s = cpu_s(lab, "monitor") - before_s
        in_file = len(capture_file.read(path).packets)
        del port
        traffic = BareTraffic(lab, 0.5)
        plain = traffic.received_per_s()
        with _capturing(lab, Path(folder) / "flood.pcapng"):
            captured = traffic.received_per_s()
    return {
        "paced_missed": missed,
        "paced_not_in_file": count - in_file,
        "monitor_cpu_per_frame_ns": spent_s * 1e9 / count,
        "flood_captured_over_plain": captured / plain,
    }


@contextlib.contextmanager
def _capturing(lab: Lab, path: Path) -> Iterator[Capture]:
    """The link from the switch to the receiver."""
    links = links_of(lab.plan, [f"*->{lab.plan.hosts[-1].name}"])
    with path.open("wb") as file:
        running = Capture(lab.directory, links, file.fileno(), snap_bytes=SNAP_BYTES)
    with running:
        yield running
