# SPDX-License-Identifier: GPL-2.0-or-later
"""Times in the specification's code."""

import pytest

from softroce_lab.programs.rdmacm.settings import LONGEST_WAIT, ack_timeout, peer_time_ns, time_ns


@pytest.mark.parametrize(("code", "ns"), [(0, 4096), (14, 67_108_864), (20, 4_294_967_296)])
def test_a_code_doubles(code, ns):
    assert time_ns(code) == ns


def test_a_peer_makes_nobody_wait_for_hours():
    assert peer_time_ns(31) == time_ns(LONGEST_WAIT) < 70e9
    assert peer_time_ns(20) == time_ns(20)


@pytest.mark.parametrize(
    ("delay", "life", "timeout"),
    [
        (15, 18, 19),  # what rxe's REQ in the capture says: 19
        (15, 16, 17),
        (15, 14, 16),
        (15, 13, 16),
        (15, 5, 15),
        (31, 31, 31),
    ],
)
def test_an_acknowledgement_timeout_is_linuxs(delay, life, timeout):
    assert ack_timeout(delay, life) == timeout
