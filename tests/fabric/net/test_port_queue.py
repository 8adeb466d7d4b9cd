# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's kernel sends through a token bucket, as the kernel itself reports it."""

import os

import pytest
from pyroute2 import IPRoute

from softroce_lab.fabric.net import netns, port_queue

LOOPBACK = 1
FRAME_BYTES = 2214


@pytest.fixture(autouse=True)
def aside():
    fd = netns.create()
    with netns.entered(fd):
        yield
    os.close(fd)


def rate_of_bucket():
    """Bytes a second, as far as 32 bits go; None: there is no token bucket."""
    with IPRoute() as kernel:
        found = list(kernel.get_qdiscs(index=LOOPBACK))
    buckets = [each for each in found if each.get_attr("TCA_KIND") == "tbf"]
    if not buckets:
        return None
    return buckets[0].get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"]


def test_another_rate_and_none():
    for rate_bps in (1_000_000_000, 8_000_000):
        port_queue.hold(LOOPBACK, rate_bps, FRAME_BYTES)
        assert rate_of_bucket() == rate_bps // 8
    for _ in range(2):
        port_queue.hold(LOOPBACK, None, FRAME_BYTES)
        assert rate_of_bucket() is None
