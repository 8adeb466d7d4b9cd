# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo, artifacts and the fabric's tests on the kernels that Debian ships: in QEMU guests."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.results import artifact
from softroce_lab.results.recorded import Recorded
from tests.guests import machine
from tests.guests import root as rootfs
from tests.results.made import run

TIMEOUT_S = 9000  # emulated; the guest bounds each of its jobs
LOG_LINES = 150
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap"}
KERNELS = {"6.1": "bookworm", "6.12": "trixie"}


CLOCKS = {"real": ("csa_ud", "irn"), "virtual": ("csa_ud", "irn", "rc")}


def pack(folder, scratch):
    """Unzipped artifacts of this machine, one of each clock, whose fates must be the same."""
    shutil.rmtree(folder, ignore_errors=True)
    star = "topology={generator: {kind: star, hosts: 3}}"
    lossy = "faults=[{name: lossy, links: '*->h2', loss: 3%}]"
    ring = "workload={kind: ring-all-reduce, bytes: 128KiB, message: 32KiB}"
    for clock, transports in CLOCKS.items():
        made = run("point-to-point", scratch, star, lossy, ring, "seeds=1", f"clock={clock}",
                   "deadline=60s", transports=transports)  # fmt: skip
        packed = artifact.write(Recorded(made), scratch / f"{clock}.zip")
        with zipfile.ZipFile(packed.path) as archive:
            archive.extractall(folder / clock)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_artifacts_for_guests_are_reproduced_here(tmp_path):
    pack(tmp_path / "artifacts", tmp_path)
    lab = tmp_path / "lab"
    lab.write_text(f'#!/bin/sh\nexec {sys.executable} -m softroce_lab.cli "$@"\n')
    lab.chmod(0o755)
    variables = os.environ | {"LAB_PROGRAM": str(lab), "PYTHONPATH": str(PROJECT_ROOT)}
    for clock, transports in CLOCKS.items():
        argv = ["sh", str(tmp_path / "artifacts" / clock / "reproduce.sh"), "-q"]
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        if clock == "real":
            fates = [line for line in done.stdout.splitlines() if "fates of first" in line]
            assert [line.split()[0] for line in fates] == len(transports) * ["same"]
            assert all(int(line.split(": ")[2].split()[0]) > 0 for line in fates)


def missing():
    """Debian packages that this host needs and has not."""
    return [package for tool, package in TOOLS.items() if shutil.which(tool) is None]


@pytest.mark.full("guests")
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_lab_works_on_this_kernel(kernel, tmp_path, full):
    """The demo and the fabric's tests in QEMU guests with Debian's kernels 6.1 and 6.12."""
    if not full:
        pytest.skip("builds and boots a machine: only with --full guests")
    assert os.geteuid() == 0, "needs root: sudo ./lab test --full guests"
    assert not missing(), f"apt install {' '.join(missing())}"
    image = tmp_path / "disk"
    with rootfs.held(KERNELS[kernel]) as folder:
        root = rootfs.build(KERNELS[kernel], folder)
        pack(root / "artifacts", tmp_path)
        rootfs.image(root, image)
        outcome = machine.run(root, image, folder, TIMEOUT_S)
    image.unlink()
    tail = "\n".join(outcome.console.splitlines()[-LOG_LINES:])
    print(tail)
    print(f"{kernel}: {outcome.seconds:.0f} s on {outcome.accelerator}")
    for job in outcome.jobs:
        print(f"  {job}")
    assert outcome.powered_off, "the guest did not power off in time"
    version, *jobs = outcome.jobs
    assert version.name.startswith(f"kernel-{kernel}.")
    assert [(job.name, job.exit_code) for job in jobs] == [
        (name, 0)
        for name in ("boot", "doctor", "demo", *(f"artifact-{a}" for a in CLOCKS), "tests")
    ]
