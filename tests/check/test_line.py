# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's own RC keeps the rules, wherever it is captured and whatever gets lost."""

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.line import Line, talk
from tests.check.plant import AT_REQUESTER, AT_RESPONDER, failed
from tests.native.connected import SEND, UC, WRITE

LOSSES = {"none": 0.0, "some": 0.02, "many": 0.1}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(1, 3))
def test_nothing_fails_at_any_place(loss, seed, tmp_path):
    tapes = talk(Line(loss=LOSSES[loss], seed=seed))
    for place, tape in tapes.items():
        assert (place, failed(tape.check(tmp_path))) == (place, set())


@pytest.mark.parametrize(("place", "at"), [("h1", AT_REQUESTER), ("h2", AT_RESPONDER)])
def test_nothing_fails_where_the_place_is_known(place, at, tmp_path):
    tape = talk(Line(loss=0.1, seed=7))[place]
    verdicts = tape.check(tmp_path, at=at)
    assert failed(verdicts) == set()
    assert verdicts["rc.go-back-n"].checked > 10


def test_captures_of_the_lab_tell_where_they_were_taken(tmp_path):
    tapes = talk(Line(loss=0.1, seed=3))
    known, guessed = (tapes[place].check(tmp_path) for place in ("everywhere", "s1"))
    inconclusive = "inconclusive"
    assert (
        inconclusive in guessed["rc.psn-continuity"].note
        or "gaps" in guessed["rc.psn-continuity"].note
    )
    assert "gaps" not in known["rc.psn-continuity"].note
    assert known["rc.duplicate-acknowledged"].outcome is Outcome.PASS


def test_an_interface_that_missed_packets_is_not_trusted(tmp_path):
    tape = talk(Line(loss=0.1, seed=3))["everywhere"]
    tape.delete(*range(20, len(tape), 40))
    tape.statistics = dict.fromkeys(range(4), (1000, 25))
    verdicts = tape.check(tmp_path)
    assert verdicts["integrity.missed"].failures == 4
    assert verdicts["rc.psn-continuity"].outcome is Outcome.PASS


@pytest.mark.parametrize("seed", range(1, 2))
def test_uc_loses_and_goes_on(seed, tmp_path):
    line = Line(UC, loss=0.1, seed=seed)
    one, other = line.sides
    for number in range(30):
        other.post_receive((number * 2048, 2048))
        opcode = SEND if number % 2 else WRITE
        one.post_send(opcode, (0, 1100), remote_addr=other.address + number * 2048, rkey=other.key)
    line.run()
    tapes = line.tapes()
    for place, tape in tapes.items():
        assert (place, failed(tape.check(tmp_path))) == (place, set())
    assert tapes["h1"].check(tmp_path, at=AT_REQUESTER)["uc.psn-continuity"].checked == 150
