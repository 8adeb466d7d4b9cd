# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of outputs as perftest 4.5, OSU 7.4 and fio 3.33 write them."""

import json

import pytest

from softroce_lab.experiment import figure_table, printed

BANDWIDTH = """\
 Mtu             : 2048[B]
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              1000.00            500.00\t\t   0.008000
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          8.10           31.02        8.50               8.70             0.80            12.00                   31.02
 4       1000          8.11           31.03        8.51               8.71             0.81            12.01                   31.03
"""  # noqa: E501
OSU = """\

# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                      12.50             11.00             14.00        1000
1048576              9000.25           8000.00          10000.00         100
"""
CHECKED = """\
# OSU MPI Bandwidth Test v7.2
# Size      Bandwidth (MB/s)        Validation
# Datatype: MPI_CHAR.
8                       2.50              Pass
"""
RATE = """\
# OSU MPI Multiple Bandwidth / Message Rate Test v7.4
# Size                  MB/s        Messages/s
1                       2.50        2500000.00
"""
FIO_PART = {
    "bw_bytes": 125_000_000, "iops": 2000.0, "total_ios": 128,
    "lat_ns": {"mean": 200_000.5, "max": 8_000_000},
    "clat_ns": {"percentile": {"99.000000": 1_700_000}},
}  # fmt: skip
IDLE = {"bw_bytes": 0, "iops": 0.0, "total_ios": 0}
FIO = "fio: hint\n" + json.dumps({
    "jobs": [{"read": IDLE, "write": FIO_PART}, {"read": IDLE, "write": FIO_PART}]
}) + "\n"  # fmt: skip


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("perftest", BANDWIDTH, {
            "bw_peak_gbps": 8.388608, "bw_average_gbps": 4.194304, "msgrate_mpps": 0.008,
        }),
        ("perftest", LATENCY, {
            "t_min_2_us": 8.1, "t_max_2_us": 31.02, "t_typical_2_us": 8.5, "t_avg_2_us": 8.7,
            "t_stdev_2_us": 0.8, "percentile_99_2_us": 12, "percentile_99_9_2_us": 31.02,
            "t_min_4_us": 8.11, "t_max_4_us": 31.03, "t_typical_4_us": 8.51, "t_avg_4_us": 8.71,
            "t_stdev_4_us": 0.81, "percentile_99_4_us": 12.01, "percentile_99_9_4_us": 31.03,
        }),
        ("osu", OSU, {
            "avg_latency_8_us": 12.5, "min_latency_8_us": 11, "max_latency_8_us": 14,
            "avg_latency_1048576_us": 9000.25, "min_latency_1048576_us": 8000,
            "max_latency_1048576_us": 10000,
        }),
        ("osu", CHECKED, {"bandwidth_gbps": 0.02}),
        ("osu", RATE, {"bandwidth_gbps": 0.02, "messages_per_s": 2.5e6}),
        ("fio", FIO, {
            "write_gbps": 2, "write_iops": 4000, "write_latency_mean_us": 200.0005,
            "write_latency_max_us": 8000, "write_latency_p99_us": 1700,
        }),
        ("fio", '{"jobs": 7', {}),
        ("osu", "# Size  \n", {}),
        ("perftest", " 65536 200 1 2 3\n", {}),
    ],
)  # fmt: skip
def test_figures_of_a_form(form, text, expected):
    assert printed.figures(form, text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "value", "shown", "bound", "better"),
    [
        ("median_ms", 22.5, "22.5 ms", ("40 ms", 40), "less"),
        ("took_s", 0.5, "500 ms", ("2 s", 2), "less"),
        ("bw_gbps", 1.5, "1.5 Gbit/s", ("100 Mbit", 0.1), "more"),
        ("writes_per_s", 1234.5, "1,234.5", ("7", 7), "more"),
        ("loops", 3.0, "3", ("4", 4), None),
    ],
)
def test_a_name_tells_the_unit(name, value, shown, bound, better):
    figure = figure_table.printed(f"printed.{name}")
    assert figure.unit.show(value) == shown
    assert figure.unit.parse(bound[0]) == pytest.approx(bound[1])
    assert figure.better == better
