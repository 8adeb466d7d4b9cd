# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told to perftest's programs, and read from them; tests/interop has them run."""

import math
from contextlib import nullcontext

import pytest

from softroce_lab.errors import RunError
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.kernel import figures, program, with_clock_rate
from softroce_lab.perftest.options import Options, PerfTest
from softroce_lab.perftest.report import Style, header, row

LATENCY = Latency(64, 1000, 5.1, 60.25, 5.5, 6.0, 1.25, 9.75, 60.25)


def of(test, **values):
    return PerfTest.of(Options(test, **values), 2048)


def test_the_command_line():
    argv = program(of("send_bw", bytes=1000, iterations=50, qps=2), 1000, 18515, 1)
    assert argv == [
        "ib_send_bw", "-d", "rxe0", "-x", "1", "-p", "18515", "-m", "2048", "-u", "14", "-c", "RC",
        "-s", "1000", "-n", "50", "-q", "2", "-t", "128", "-Q", "100", "-r", "512", "-F",
    ]  # fmt: skip
    assert program(of("read_lat"), 2, 5, 3)[-5:] == ["-s", "2", "-n", "1000", "-F"]
    assert "-D" in program(of("write_bw", duration_s=0.4, bidirectional=True), 8, 1, 1)
    assert "-s" not in program(of("atomic_bw"), 8, 18515, 1)


def text(test, found):
    style = Style()
    return f"{'-' * 80}\n{header(test, style)}\n{row(found, style)}\n{'-' * 80}\n"


@pytest.mark.parametrize(
    ("test", "found"),
    [
        (of("write_bw"), Bandwidth(65536, 5000, 2.0 * 2**20, 1.5 * 2**20, 12_345.0, 0)),
        (of("send_lat", bytes=64), LATENCY),
        (
            of("send_lat", bytes=64, duration_s=1.0),
            Latency(64, 7, None, None, None, 8.0, None, None, None),
        ),
    ],
)
def test_columns_are_read_as_they_are_written(test, found):
    assert figures(text(test, found), test, found.bytes) == found


def test_a_program_without_a_result():
    with pytest.raises(
        RunError, match="the program printed no result; its output: Couldn't connect"
    ):
        figures("Couldn't connect\n", of("write_bw"), 65536)


def test_endless_times_are_measured_again():
    found = [Latency(64, 50, *[math.inf] * 7), LATENCY]
    assert with_clock_rate(lambda *_: found.pop(0))(of("send_lat"), 64) == LATENCY


@pytest.mark.parametrize(("zeros", "times"), [(0, 1), (2, 3), (3, 3)])
def test_a_program_that_does_not_know_its_clocks_rate_runs_again(zeros, times):
    runs = []

    def measure(test, size, on_addresses=None):
        runs.append(size)
        rate = 0.0 if len(runs) <= zeros else 5.0
        return Bandwidth(size, 50, rate * size, rate * size, rate, received=0)

    expected = (
        pytest.raises(RunError, match="a rate of 0, 3 times") if zeros == 3 else nullcontext()
    )
    with expected:
        found = with_clock_rate(measure)(of("send_bw"), 1000)
        assert found.messages_per_second == 5
    assert runs == [1000] * times
