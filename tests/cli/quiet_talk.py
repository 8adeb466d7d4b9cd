# SPDX-License-Identifier: GPL-2.0-or-later
"""A process with the RNICs of h1 and h2 of a lab: h1 WRITEs to h2 now and then, until it is killed.

Says "ready" when both have counted something. Unlike `lab perf` it leaves the CPUs to others.
"""

import sys
import time

from softroce_lab.experiment.hosts import rnics
from softroce_lab.fabric.lab import Lab
from softroce_lab.verbs.enums import IBV_WR_RDMA_WRITE
from tests.verbs.sides import Side, connect

MESSAGE_BYTES = 8000


def main() -> None:
    with (
        Lab.open(sys.argv[1]) as lab,
        rnics.opened(lab, "h1") as first,
        rnics.opened(lab, "h2") as second,
    ):
        near, far = Side(first), Side(second)
        connect(near, far, timeout=14)
        reported = False
        while True:
            near.post(IBV_WR_RDMA_WRITE, far, MESSAGE_BYTES)
            while not near.poll():
                time.sleep(0.005)
            if not reported:
                print("ready", flush=True)
                reported = True


main()
