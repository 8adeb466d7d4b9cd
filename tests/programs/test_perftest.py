# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest as Debian ships it, with its flags where they apply."""

import re

import pytest

BYTES = 65536
QUICK = [
    ("ib_write_bw", 0, ["-n", "100"]),
    ("ib_read_bw", 1, ["-n", "100"]),
    ("ib_send_bw", 1, ["-n", "100", "-q", "4", "-b"]),
]
ROUND_TRIPS = [("ib_write_lat", 1), ("ib_send_lat", 0), ("ib_read_lat", 0), ("ib_atomic_lat", 1)]
MORE = [
    ("ib_write_bw", ["-n", "50", "-q", "4", "-b"]),
    ("ib_write_bw", ["-c", "UC", "-n", "50", "-b"]),
    ("ib_read_bw", ["-n", "50", "-q", "4", "-b"]),
    ("ib_send_bw", ["-n", "50", "--use-srq", "-q", "4"]),
    ("ib_send_bw", ["-n", "50", "-e"]),
    ("ib_send_bw", ["-c", "UC", "-n", "50"]),
    ("ib_send_bw", ["-c", "UD", "-n", "500", "-s", "2048"]),
    ("ib_send_lat", ["-c", "UD", "-n", "100", "-e"]),
    ("ib_atomic_bw", ["-n", "200", "-q", "4", "-b"]),
    ("ib_write_bw", ["-D", "1"]),
]
LOSSY = [
    ("ib_write_bw", ["-n", "50"]),
    ("ib_write_lat", ["-n", "100"]),
    ("ib_send_bw", ["-n", "50", "-q", "4"]),
    ("ib_send_lat", ["-n", "100", "-e"]),
    ("ib_read_bw", ["-n", "50"]),
    ("ib_read_lat", ["-n", "100"]),
    ("ib_atomic_bw", ["-n", "200"]),
    ("ib_atomic_lat", ["-n", "100"]),
]


def runs(pair, program, gid, flags, tries=1):
    _, client = pair.converse(program, "-F", "-x", str(gid), *flags, tries=tries)
    # `inf`: perftest could not measure the processor's frequency on a busy machine.
    assert re.search(r"^ \d+ +\d+ +([\d.]+|inf) ", client.stdout, re.MULTILINE), client.stdout


@pytest.mark.parametrize(("program", "gid", "flags"), QUICK)
def test_bandwidth(pair, program, gid, flags):
    sender = "h2" if program == "ib_read_bw" else "h1"
    with pair.sending(sender, 100 * BYTES):
        runs(pair, program, gid, flags)


@pytest.mark.parametrize(("program", "gid"), ROUND_TRIPS)
def test_latency(pair, program, gid):
    before = pair.roce_packets("h1")
    runs(pair, program, gid, ["-n", "100"])
    assert pair.roce_packets("h1") - before >= 100


@pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("program", "flags"), MORE)
def test_with_its_flags(pair, program, gid, flags):
    before = pair.roce_packets("h2") + pair.roce_packets("h1")
    runs(pair, program, gid, flags)
    assert pair.roce_packets("h2") + pair.roce_packets("h1") - before >= 50


@pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("program", "flags"), LOSSY)
def test_over_a_lossy_link(pair, program, gid, flags):
    pair.lose("1%")
    before = pair.roce_packets("h2") + pair.roce_packets("h1")
    runs(pair, program, gid, flags, tries=3)
    assert pair.roce_packets("h2") + pair.roce_packets("h1") - before >= 50
