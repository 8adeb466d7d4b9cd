# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo and the fabric's tests on the kernels that Debian ships: in QEMU guests."""

import os
import shutil

import pytest

from tests.guests import machine
from tests.guests import root as rootfs

TIMEOUT_S = 9000  # emulated; the guest bounds each of its jobs
LOG_LINES = 150
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap"}
KERNELS = {"6.1": "bookworm", "6.12": "trixie"}


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
        (name, 0) for name in ("boot", "doctor", "demo", "tests")
    ]
