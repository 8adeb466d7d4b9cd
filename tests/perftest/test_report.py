# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's own lines, as version 4.5 prints them."""

import json

from softroce_lab.perftest.end import Address
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.options import Options, PerfTest
from softroce_lab.perftest.report import (
    Style,
    addresses,
    document,
    footnotes,
    header,
    preamble,
    row,
    title,
)

BANDWIDTH = Bandwidth(65536, 5000, 1000 * 2**20, 950.5 * 2**20, 15208.0, 0)
LATENCY = Latency(2, 1000, 4.72, 581.34, 5.15, 8.28, 40.75, 21.5, 581.34)


def of(test, **values):
    return PerfTest.of(Options(test, **values), 2048)


def test_columns_of_a_bandwidth():
    assert header(of("write_bw"), Style()) == (
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
    )
    assert row(BANDWIDTH, Style()) == (
        " 65536      5000             1000.00            950.50 \t\t   0.015208"
    )


def test_columns_in_gigabits():
    style = Style(gbits=True)
    assert "BW peak[Gb/sec]    BW average[Gb/sec]" in header(of("write_bw"), style)
    average = 950.5 * 2**20 * 8 / 1e9
    assert row(BANDWIDTH, style).split()[3] == f"{average:.2f}"


def test_columns_of_a_latency():
    assert header(of("read_lat"), Style()) == (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
        "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
    )
    assert row(LATENCY, Style()).split() == [
        "2", "1000", "4.72", "581.34", "5.15", "8.28", "40.75", "21.50", "581.34",
    ]  # fmt: skip


def test_columns_of_a_duration():
    found = Latency(64, 24244, None, None, None, 6.25, None, None, None)
    assert header(of("send_lat", duration_s=1.0), Style()) == (
        " #bytes        #iterations       t_avg[usec]    tps average"
    )
    assert row(found, Style()).split() == ["64", "24244", "6.25", "160000.00"]


def test_the_preamble_tells_the_test():
    text = preamble(of("write_bw", qps=3, bidirectional=True), Style())
    assert "RDMA_Write Bidirectional BW Test" in text
    assert " Number of qps   : 3\t\tTransport type : IB" in text
    assert " CQ Moderation   : 1\n" in text
    assert "Outstand reads" in preamble(of("atomic_lat"), Style())
    assert title(of("read_lat")) == "RDMA_Read Latency Test"


def test_queue_pairs():
    one = Address(0x0A000001, 0x13, 0xABCDE, 0x1001, 0x7FC000)
    assert addresses("local", [one], of("write_bw")) == (
        " local address: LID 0000 QPN 0x0013 PSN 0xabcde RKey 0x001001 VAddr 0x00000000007fc000\n"
        " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01"
    )
    assert "RKey" not in addresses("local", [one], of("send_bw"))


def test_json_that_parses():
    text = json.dumps(document(of("write_bw"), Style(), [BANDWIDTH]))
    parsed = json.loads(text)
    assert parsed["test_info"]["Connection_type"] == "RC"
    assert parsed["results"] == {
        "MsgSize": 65536, "n_iterations": 5000, "BW_peak": 1000.0, "BW_average": 950.5,
        "BW_unit": "MB/sec", "MsgRate": 0.015208,
    }  # fmt: skip
    found = document(of("read_lat"), Style(), [LATENCY])["results"]
    assert (found["t_min"], found["percentile_99.9"]) == (4.72, 581.34)
    every = document(of("write_bw", all_sizes=True), Style(), [BANDWIDTH] * 23)
    assert len(every["results"]) == 23


def test_percentiles_of_too_few_iterations_are_named_below_the_columns():
    few = Latency(8, 50, 4.72, 581.34, 5.15, 8.28, 40.75, 21.5, 581.34)
    assert footnotes([LATENCY, BANDWIDTH]) == []
    [line] = footnotes([LATENCY, few])
    assert line.startswith(" 99%, 99.9% of 50 iterations (8 bytes)")
    results = document(of("read_lat", iterations=50), Style(), [few])["results"]
    assert results["few_samples"] == ["99%", "99.9%"]
