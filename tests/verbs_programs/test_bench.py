# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab bench programs` in a short form: the document, not the speed. Its guest has its own test."""

import pytest

from softroce_lab.bench.rdma import perftest
from softroce_lab.errors import RunError
from tests.bench.test_engine_and_path import document, holds, positive

COLUMNS = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    500              147.80             17.50\t\t   0.000017
"""


def test_the_document(pair, tmp_path):
    short = ("--rounds", "2", "--seconds", "0.05", "--trips", "50", "--no-guest")
    found = document(tmp_path, "programs", *short)
    assert found["schema_version"] == 1
    ratios = {"write_bw_over_raw", "send_lat_over_echo", "write_bw_over_perf", "send_lat_over_perf"}
    assert set(found["ratios"]) == ratios
    for name, ratio in found["ratios"].items():
        assert holds(found["ratios_interval_95"][name], ratio)
    for name in ("write_bw_over_raw", "send_lat_over_echo"):
        assert found[name] == found["ratios"][name]
    assert set(found["payload_bps"]) == {"program", "raw", "perf"}
    assert positive(found["payload_bps"].values())
    trips = found["round_trip_ns"]
    assert 500 < trips["echo"] < trips["program_trip"] < 10**9
    assert found["rounds"] == 2
    assert list(tmp_path.iterdir()) == []


def test_what_perftest_prints():
    assert perftest.write_bw_rate(COLUMNS, 1 << 20) == 17.5 * 2**20
    latency = " 64      5000          6.03      108.33      6.50  \t   7.05     \t7.19\t\t32.3\n"
    assert perftest.send_lat_trip_ns(latency, 64) == 13_000
    with pytest.raises(RunError, match="no result; its output: Couldn't listen"):
        perftest.write_bw_rate("Couldn't listen", 1 << 20)
