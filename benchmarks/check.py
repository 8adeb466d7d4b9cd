# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading and checking a capture of whole packets, of RC and of csa_ud with losses.

`read` is the native reader: it checks every ICRC and hashes every payload. `check` is the whole
`lab verify`, a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from softroce_lab.errors import ExitCode, RunError
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source

_EXPERIMENT = """
name: benchmark
topology: two-hosts
mtu: 600
transports: [{transport}]
workload: {{kind: point-to-point, bytes: {size}, message: 16KiB}}
faults: [{{name: loss, links: "s1->*", loss: random 0.1%}}]
deadline: 60s
"""
_READ = """
import sys
from pathlib import Path
from softroce_lab.telemetry import capture_file
print(len(capture_file.read(Path(sys.argv[1])).packets))
"""


def measure(short: bool) -> dict[str, float]:
    """CPU seconds, and packets that were read."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="softroce-benchmark-") as folder:
        for transport in ("rc", "csa_ud"):
            capture = _captured(transport, "512KiB" if short else "48MiB", Path(folder))
            spent, packets = _cpu_s("-c", _READ, str(capture))
            found[f"{transport}_packets_read_per_cpu_s"] = int(packets) / spent
            spent, _ = _cpu_s("-m", "softroce_lab.cli", "verify", str(capture))
            found[f"{transport}_check_cpu_s"] = spent
    return found


def _captured(transport: str, size: str, under: Path) -> Path:
    """The capture of a run on the virtual clock."""
    text = _EXPERIMENT.format(transport=transport, size=size)
    loaded = spec.of(yaml_source.parse(text, "check.yaml"))
    wanted = Wanted(("h1->s1", "h2->s1"), snap_bytes=0)
    outcome = experiment_run.run(loaded, Silent(), under=under / transport, capture=wanted)
    (capture,) = outcome.directory.rglob("*.pcapng")
    return capture


def _cpu_s(*arguments: str) -> tuple[float, str]:
    """CPU seconds of a Python process from its start to its end, and its output. RunError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != ExitCode.DONE:
        raise RunError(f"{arguments}: {done.stderr.strip() or done.stdout.strip()}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.stdout
