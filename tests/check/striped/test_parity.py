# SPDX-License-Identifier: GPL-2.0-or-later
"""Parity that csa_ud sends behind its messages keeps its rules, and mistakes that are planted in a
capture are found."""

import dataclasses
import json
import struct

import numpy as np
import pytest

from softroce_lab.check import suites
from softroce_lab.check.striped.parity import encode
from softroce_lab.check.striped.suite import SUITE
from softroce_lab.check.verdict import Outcome
from softroce_lab.transports.erasure.code import ErasureCode
from tests.check.plant import check, failed, shown
from tests.check.striped_tape import BACK_DOWN, CHUNK, DOWN, UP, first, record
from tests.transports.pair_rig import CONTROL, REPORT

RULES = {rule.name for rule in SUITE.rules if rule.name.startswith("parity.")}
MESSAGES, PACKETS, ROWS = 6, 20, 2
_CE_AT = 16  # of a receiver report


def tape(losses=(), **more):
    return record("csa_ud", losses, **({"parity": str(ROWS)} | more))


def in_run(folder, planted, **options):
    """Its verdicts in a run directory that tells these options."""
    run = {
        "run": "csa_ud/1", "transport": "csa_ud", "protocol": "csa_ud", "seed": 1,
        "clock": "virtual", "capture": {"file": "trace.pcapng"},
    }  # fmt: skip
    options = {"parity_budget": 0.15, "parity_uncongested": True} | options
    other = {"label": "other", "options": {"parity_budget": 1.0, "parity_uncongested": False}}
    experiment = {"transports": [other, {"label": "csa_ud", "options": options}]}
    manifest = {"runs": [run], "faults": [], "experiment": experiment}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    planted.write(folder / "trace.pcapng")
    return check(folder, of=suites.Format.LAB)


def everywhere(planted, number, /, **fields):
    """Other fields in all sightings of a packet; their numbers."""
    numbers = planted.everywhere(number)
    for each in numbers:
        planted.alter(each, **fields)
    return set(numbers)


# ---------------------------------------------------------------- nothing is wrong


def test_every_rule_of_parity_holds(tmp_path):
    verdicts = in_run(tmp_path, tape())
    assert {rule for rule in RULES if verdicts[rule].outcome is Outcome.PASS} == RULES
    assert not failed(verdicts)
    for rule in RULES - {"parity.behind"}:
        assert verdicts[rule].checked == MESSAGES * ROWS
    assert verdicts["parity.behind"].checked == MESSAGES


def test_what_parity_restored_is_there_and_nobody_need_ask_for_it(tmp_path):
    verdicts = in_run(tmp_path, tape([first(2, 18, 19)]))
    assert not failed(verdicts)
    assert verdicts["csa.nack"].note == "parity restored 2"
    assert verdicts["once.whole"].checked == MESSAGES


def test_a_message_that_nothing_restored_is_not_whole(tmp_path):
    """One packet of its parity lost, besides."""
    planted = tape([first(2, 18, 19)])
    for number in planted.parity(message=2, index=PACKETS, link=DOWN):
        planted.frame(number).comment = "dropped: test, rule planted"
    for message in (number for number in planted.data(message=2, link=DOWN)):
        if planted.lab(message)["attempt"]:
            planted.frame(message).comment = "dropped: test, rule planted"
    verdicts = planted.check(tmp_path)
    assert {"once.whole", "csa.complete"} <= failed(verdicts)


def test_long_messages_have_parity_of_their_last_64_packets(tmp_path):
    planted = tape([first(1, 79)], messages=2, packets=80)
    verdicts = planted.check(tmp_path)
    assert not failed(verdicts)
    assert {planted.lab(number)["code"] for number in planted.parity()} == {64}
    assert verdicts["parity.bytes"].checked == 2 * ROWS


def test_a_loss_before_the_block_is_asked_for(tmp_path):
    verdicts = tape([first(1, 3)], messages=2, packets=80).check(tmp_path)
    assert not failed(verdicts)
    assert "restored" not in verdicts["csa.nack"].note


def test_parity_does_not_restore_what_is_before_its_block(tmp_path):
    planted = tape([first(1, 3)], messages=2, packets=80)
    for number in planted.data(message=1, index=3, attempt=1, link=DOWN):
        planted.frame(number).comment = "dropped: test, rule planted"
    assert "csa.complete" in failed(planted.check(tmp_path))


@pytest.mark.parametrize("packets", [1, 2, 5])
def test_short_messages(tmp_path, packets):
    planted = tape(parity="1", parity_budget=1.0, packets=packets)
    assert planted.parity()
    assert not failed(in_run(tmp_path, planted, parity_budget=1.0))


@pytest.mark.parametrize("links", [(UP,), (DOWN,), (UP, DOWN)], ids=str)
def test_a_part_of_the_links(tmp_path, links):
    verdicts = tape([first(2, 18, 19)]).only(*links).check(tmp_path)
    assert not failed(verdicts)
    assert verdicts["parity.block"].checked == MESSAGES * ROWS


def test_a_capture_that_begins_late(tmp_path):
    planted = tape([first(2, 18, 19)])
    for begin in planted.data(link=UP)[5::31] + planted.parity(link=UP)[::5]:
        assert not failed(planted.since(begin).check(tmp_path))


def test_a_capture_without_data_decides_nothing_about_bytes(tmp_path):
    verdicts = tape().cut(128).check(tmp_path)
    assert verdicts["parity.bytes"].outcome is Outcome.INCONCLUSIVE
    assert not failed(verdicts)


@pytest.mark.parametrize("packets", [1, 2, 17, 64])
def test_the_encoder_is_the_engine_s_code(packets):
    """That of the checker is another program."""
    data = np.random.default_rng(packets).integers(0, 256, (packets, CHUNK), dtype=np.uint8)
    parity = np.zeros((4, CHUNK), np.uint8)
    ErasureCode("mds", packets, 4).encode(data, parity)
    assert [encode(data, row).tobytes() for row in range(4)] == [each.tobytes() for each in parity]


# ---------------------------------------------------------------- what is planted is found


def test_wrong_bytes(tmp_path):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS + 1, link=UP)
    payload = bytearray(planted.lab(number)["payload"])
    payload[7] ^= 1
    frames = everywhere(planted, number, payload=bytes(payload))
    verdicts = planted.check(tmp_path)
    assert failed(verdicts) == {"parity.bytes"}
    assert shown(verdicts["parity.bytes"]) <= frames


def test_bytes_of_another_message(tmp_path):
    planted = tape()
    one, other = (planted.parity(message=n, index=PACKETS, link=UP)[0] for n in (1, 2))
    everywhere(planted, one, payload=planted.lab(other)["payload"])
    assert failed(planted.check(tmp_path)) == {"parity.bytes"}


def test_a_block_of_other_packets(tmp_path):
    planted = tape()
    for number in planted.parity(message=3, link=UP):
        everywhere(planted, number, code=PACKETS - 1)
    verdicts = planted.check(tmp_path)
    assert failed(verdicts) == {"parity.block", "parity.bytes"}
    assert "covers 19 packets of data instead of 20" in verdicts["parity.block"].exhibits[0].text


def test_two_blocks_of_one_message(tmp_path):
    planted = tape()
    everywhere(planted, planted.parity(message=3, index=PACKETS + 1, link=UP)[0], code=PACKETS - 1)
    assert "once.id" in failed(planted.check(tmp_path))


def test_a_fifth_row(tmp_path):
    planted = tape()
    everywhere(planted, planted.parity(message=3, index=PACKETS, link=UP)[0], index=PACKETS + 4)
    assert {"parity.block", "parity.bytes"} == failed(planted.check(tmp_path))


def test_parity_that_is_too_short(tmp_path):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS, link=UP)
    everywhere(planted, number, payload=planted.lab(number)["payload"][:-4])
    assert {"parity.block", "parity.bytes"} == failed(planted.check(tmp_path))


def test_parity_before_the_last_packet(tmp_path):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS, link=UP)
    (last,) = planted.data(message=3, index=PACKETS - 1, link=UP)
    frame = planted.frame(number)
    frame.time_ns = planted.frame(last).time_ns - 1
    verdicts = planted.check(tmp_path)
    assert "parity.behind" in failed(verdicts)
    assert number in shown(verdicts["parity.behind"])


def test_parity_without_all_packets_of_data(tmp_path):
    planted = tape()
    planted.delete(*planted.data(message=3, index=4))
    assert "parity.behind" in failed(planted.check(tmp_path))


def test_parity_that_is_a_second_attempt(tmp_path):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS, link=UP)
    frames = everywhere(planted, number, attempt=1)
    verdicts = planted.check(tmp_path)
    assert "parity.once" in failed(verdicts)
    assert shown(verdicts["parity.once"]) <= frames


@pytest.mark.parametrize("attempt", [0, 1])
def test_parity_sent_again(tmp_path, attempt):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS, link=UP)
    last = planted.frame(len(planted))
    frame = dataclasses.replace(planted.frame(number), time_ns=last.time_ns + 1)
    planted.frames.append(frame)
    planted.alter(
        len(planted), attempt=attempt,
        **{"infiniband.bth.psn": planted.lab(number)["infiniband.bth.psn"] + 1000},
    )  # fmt: skip
    verdicts = planted.check(tmp_path)
    assert "parity.once" in failed(verdicts)
    assert shown(verdicts["parity.once"]) == {len(planted)}


def test_more_than_the_budget(tmp_path):
    planted = tape(parity="4", parity_budget=1.0)
    verdicts = in_run(tmp_path, planted)
    assert failed(verdicts) == {"parity.budget"}
    assert verdicts["parity.budget"].failures == 24 - 18  # of 120 packets
    assert not failed(in_run(tmp_path, planted, parity_budget=0.2))
    alone = planted.check(tmp_path)["parity.budget"]
    assert alone.outcome is Outcome.PASS
    assert "no run directory tells the budget" in alone.note


def test_retransmissions_do_not_raise_the_budget(tmp_path):
    losses = [first(0, 0, 99)]
    planted = tape(losses, parity="4", parity_budget=1.0, parity_idle=False, packets=400)
    verdicts = in_run(tmp_path, planted, parity_budget=0.0099)  # 24 of 2,400
    assert failed(verdicts) == {"parity.budget"}


def marked(planted, most=1_000):
    """Every report that comes to h1 shows one more mark than that before it, up to `most`."""
    marks = 0
    for number in range(1, len(planted) + 1):
        lab = planted.lab(number)
        if planted.frame(number).interface != BACK_DOWN or lab["kind"] not in (CONTROL, REPORT):
            continue
        at = (lab["length"] if lab["kind"] == CONTROL else 0) + _CE_AT
        payload = bytearray(lab["payload"])
        if len(payload) < at + _CE_AT:
            continue
        marks = min(marks + 1, most)
        payload[at : at + 4] = struct.pack(">I", marks)
        planted.alter(number, payload=bytes(payload))
    return marks


@pytest.mark.parametrize(
    "shape", [{"packets": 400}, {"messages": 60, "parity_idle": False}], ids=["alone", "joined"]
)
def test_parity_although_marks_come(tmp_path, shape):
    """Reports leave alone, or with acknowledgements."""
    planted = tape(**shape)
    assert marked(planted)
    verdicts = in_run(tmp_path, planted)
    assert failed(verdicts) == {"parity.marks"}
    assert verdicts["parity.marks"].exhibits[0].text.endswith("the newest report showed marks")
    assert not failed(in_run(tmp_path, planted, parity_uncongested=False))
    assert planted.check(tmp_path)["parity.marks"].outcome is Outcome.INCONCLUSIVE
    assert not failed(in_run(tmp_path, planted.only(UP, DOWN)))


def test_marks_are_new_in_one_report(tmp_path):
    """Parity may leave after later ones, and what is decided before a report leaves after it."""
    planted = tape(messages=60, parity_idle=False)
    assert marked(planted, most=1) == 1
    assert not failed(in_run(tmp_path, planted))


def test_parity_is_numbered_on_its_path(tmp_path):
    planted = tape()
    (number,) = planted.parity(message=3, index=PACKETS, link=UP)
    everywhere(planted, number, number=planted.lab(number)["number"] + 1)
    assert "csa.numbers" in failed(planted.check(tmp_path))


def test_data_behind_the_end_is_no_parity(tmp_path):
    planted = tape()
    (number,) = planted.data(message=3, index=PACKETS - 1, link=UP)
    everywhere(planted, number, index=PACKETS)
    assert "once.length" in failed(planted.check(tmp_path))


def test_data_with_a_code(tmp_path):
    planted = tape()
    everywhere(planted, planted.data(message=3, index=4, link=UP)[0], code=1)
    assert failed(planted.check(tmp_path)) == {"once.id"}
