# SPDX-License-Identifier: GPL-2.0-or-later
"""Credits of a reliable connection: what begins beyond them is found, and who knew of them."""

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import AT_REQUESTER, MS, Talk, failed, shown


def lend(limit_code, known_ms=200):
    """Messages under counted credits: none is acknowledged after the first."""
    talk = Talk()
    talk.ask(1)
    given = talk.ack(1, 1, syndrome=limit_code)
    talk.wait(known_ms * MS)
    return talk, given, [talk.ask(psn) for psn in range(2, 7)]


def test_a_message_beyond_the_credits(tmp_path):
    talk, given, asked = lend(2)  # two: messages 2 and 3
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.credits"}
    assert shown(verdicts["rc.credits"]) == {given, *asked[2:]}


def test_messages_within_the_credits(tmp_path):
    talk, _, _ = lend(5)  # six
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.credits"].checked == 5


def test_one_message_beyond_the_credits_may_go_alone(tmp_path):
    talk = Talk()
    for psn in range(1, 5):
        talk.wait(200 * MS)
        talk.ask(psn)
        talk.ack(psn, psn, syndrome=0)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.credits"].checked == 3


@pytest.mark.parametrize(("known_ms", "late"), [(0, False), (99, False), (100, True)])
def test_away_from_the_requester_credits_may_be_on_their_way(known_ms, late, tmp_path):
    """The first counted ones: until they are there, the requester knows of no limit."""
    talk, _, asked = lend(2, known_ms)
    verdict = talk.check(tmp_path)["rc.credits"]
    assert verdict.outcome is (Outcome.FAIL if late else Outcome.NOT_APPLICABLE)
    assert verdict.checked == (len(asked) if late else 0)


def test_at_the_requester_credits_count_at_once(tmp_path):
    talk, given, asked = lend(2, known_ms=0)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert failed(verdicts) == {"rc.credits"}
    assert shown(verdicts["rc.credits"]) == {given, *asked[2:]}
