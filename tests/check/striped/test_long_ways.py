# SPDX-License-Identifier: GPL-2.0-or-later
"""Long ways and long round trips: what has not come yet is not lost, nor late by other timers."""

import dataclasses

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import MS, S, failed
from tests.check.striped.test_messages import PACKETS, TAIL, csa_ud, later, nacks_of
from tests.check.striped_tape import BACK_UP, DOWN, UP, record


@pytest.mark.parametrize(("way_ms", "lost"), [(1, False), (99, False), (101, True)])
@pytest.mark.parametrize("transport", ["csa_ud", "irn"])
def test_packets_may_be_on_their_way_when_the_capture_ends(tmp_path, transport, way_ms, lost):
    """The last message has left its sender, and then one answer to the first one is heard."""
    tape = record(transport)
    answer = next(frame for frame in tape.frames if frame.interface == BACK_UP)
    (gone,) = tape.data(message=5, index=PACKETS - 1, link=UP)
    end_ns = tape.frame(gone).time_ns + way_ms * MS
    del tape.frames[gone:]
    tape.delete(*tape.data(message=5, link=DOWN))
    tape.frames.append(dataclasses.replace(answer, time_ns=end_ns))
    verdict = tape.check(tmp_path)["sr.repaired"]
    assert verdict.outcome is (Outcome.INCONCLUSIVE if lost else Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize(("srtt_ms", "known"), [(10, True), (11, False)])
def test_timers_are_not_known_where_four_round_trips_are_longer_than_t_max(
    tmp_path, srtt_ms, known
):
    """A NACK is a second late; the timers of a slow network may allow that."""
    tape = csa_ud(TAIL)
    exponent = 13  # xdp/lab_wire.h: above a mantissa of 11 bits
    for number in range(1, len(tape) + 1):
        tape.alter(number, srtt=exponent << 11 | srtt_ms * MS >> exponent)
    later(tape, nacks_of(tape, 4)[0], S)
    verdicts = tape.check(tmp_path)
    if known:
        assert "csa.nack" in failed(verdicts)
    else:
        assert verdicts["csa.nack"].outcome is Outcome.INCONCLUSIVE
        assert "such long round trips" in verdicts["csa.nack"].note
