# SPDX-License-Identifier: GPL-2.0-or-later
"""`uet_rud` and `uet_rod` retransmit what a NACK asks for, or whose timer ended."""

import pytest

from softroce_lab.transports import registry
from tests.check.plant import failed, shown
from tests.check.striped import test_messages as planted
from tests.check.striped_tape import record

TRANSPORTS = ("uet_rud", "uet_rod")
MESSAGES, PACKETS = planted.MESSAGES, planted.PACKETS


def checked(tmp_path, transport, plant, losses=planted.LOSSES, **changed):
    """The verdicts on a tape into which `plant` has put a fault, and the frames that show it."""
    tape = record(transport, losses, **changed)
    frames = plant(tape)
    options = registry.find(transport).engine(changed)["options"]
    return planted.in_run_of(tmp_path, tape, transport, options=options), frames


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_they_keep_every_rule(tmp_path, transport):
    verdicts, _ = checked(tmp_path, transport, lambda _tape: None)
    assert failed(verdicts) == set()
    assert verdicts["sr.only-holes"].checked >= planted.LOST
    assert verdicts["once.whole"].checked == MESSAGES


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (planted.retransmits_what_was_reported, "sr.only-holes"),
        (planted.retransmits_without_a_sign, "sr.only-holes"),
        (planted.answers_what_was_never_sent, "once.ack-known"),
    ],
)
def test_a_planted_fault_is_found(tmp_path, transport, plant, rule):
    verdicts, frames = checked(tmp_path, transport, plant, planted.TAIL)
    assert rule in failed(verdicts)
    assert frames <= shown(verdicts[rule])


def test_a_sack_of_a_packet_that_has_not_come_is_found(tmp_path):
    verdicts, frames = checked(
        tmp_path, "uet_rud", planted.names_a_packet_that_has_not_come, planted.MIDDLE,
        acknowledged_bytes="0B",
    )  # fmt: skip
    assert frames <= shown(verdicts["once.told"])


def test_sleek_sends_no_packet_again_at_once(tmp_path):
    """Neither a recovery nor a probe explains it: packets before it are missing, too."""
    plant = planted.retransmits_without_a_sign
    verdicts, frames = checked(tmp_path, "uet_rud", plant, planted.TAIL, sleek=True)
    assert frames <= shown(verdicts["sr.only-holes"])
