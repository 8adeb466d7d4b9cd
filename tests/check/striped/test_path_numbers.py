# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers on paths, probes and settled numbers in captures with planted faults."""

import dataclasses

import pytest

from softroce_lab.check.verdict import Outcome
from softroce_lab.transports.control import Nack
from tests.check.plant import MS, failed
from tests.check.striped_tape import BACK_UP, DOWN, UP, first, record

PATH_PROBE = 3
RULES = {"csa.numbers", "csa.probes", "csa.settled"}
LOSSES = (first(1, 3), first(2, 17, 19), first(3, 0, 19))


def csa_ud():
    """With a silence behind the last burst of probes."""
    tape = record("csa_ud", LOSSES)
    burst = max(probes(tape, DOWN))
    for frame in tape.frames[burst:]:
        frame.time_ns += 100 * MS
    return tape


def probes(tape, link=UP):
    return tape._with(PATH_PROBE, {"link": link})


def skips_a_number(tape):
    for frame in tape.everywhere(tape.data(link=UP, message=1, index=5)[0]):
        tape.alter(frame, number=tape.lab(frame)["number"] + 1)


def repeats_a_number(tape):
    for frame in tape.everywhere(tape.data(link=UP, message=1, index=5)[0]):
        tape.alter(frame, number=tape.lab(frame)["number"] - 1)


def is_of_another_epoch(tape):
    for frame in tape.everywhere(tape.data(link=UP, message=1, index=5)[0]):
        tape.alter(frame, epoch=tape.lab(frame)["epoch"] ^ 1)


def numbers_a_probe_wrong(tape):
    for frame in tape.everywhere(probes(tape)[0]):
        tape.alter(frame, number=tape.lab(frame)["number"] + 7)


def never_probes(tape):
    """And numbers on as if it never had."""
    gone = {number - 1 for link in (UP, DOWN) for number in probes(tape, link)}
    tape.frames = [each for number, each in enumerate(tape.frames) if number not in gone]
    counts = {}
    for number in range(1, len(tape) + 1):
        lab = tape.lab(number)
        if lab.get("kind") == 0:
            at = (tape.frame(number).interface, lab["path"])
            tape.alter(number, number=counts.setdefault(at, 0))
            counts[at] += 1


def leaves_out_a_path(tape):
    """Nothing follows there."""
    last = probes(tape)[-1]
    lost = {number - 1 for number in tape.everywhere(last)}
    tape.frames = [each for number, each in enumerate(tape.frames) if number not in lost]


def settles(tape, which, path_numbers):
    number, nack = tape.sent(Nack, BACK_UP)[which]
    settled = list(nack.settled)
    for path, change in path_numbers.items():
        settled[path] += change
    for each in tape.everywhere(number):
        tape.say(each, dataclasses.replace(nack, settled=tuple(settled)))


def settles_what_is_to_come(tape):
    """One number beyond all that has come on a path."""
    came = [(n, tape.lab(n)) for kind in (0, PATH_PROBE) for n in tape._with(kind, {"link": DOWN})]
    for which, (number, nack) in enumerate(tape.sent(Nack, BACK_UP)):
        on_path = [lab["number"] for n, lab in came if n < number and lab["path"] == 0]
        if nack.settled[0] == max(on_path) + 1:
            return settles(tape, which, {0: 1})
    raise AssertionError("no NACK settles all that has come")


def calls_a_packet_trimmed_that_is_to_come(tape):
    number, nack = tape.sent(Nack, BACK_UP)[0]
    last = tape.lab(tape.data(link=DOWN)[-1])
    for each in tape.everywhere(number):
        tape.say(each, dataclasses.replace(nack, trimmed=((last["path"], last["number"]),)))


def settles_less_than_before(tape):
    settles(tape, -1, {0: -5, 1: -5, 2: -5})


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        (skips_a_number, {"csa.numbers"}),
        (repeats_a_number, {"csa.numbers"}),
        (is_of_another_epoch, {"csa.numbers"}),
        (numbers_a_probe_wrong, {"csa.numbers"}),
        (never_probes, {"csa.probes"}),
        (leaves_out_a_path, {"csa.probes"}),
        (settles_what_is_to_come, {"csa.settled"}),
        (settles_less_than_before, {"csa.settled"}),
        (calls_a_packet_trimmed_that_is_to_come, {"csa.settled"}),
    ],
)
def test_a_planted_fault_is_found(tmp_path, fault, rules):
    tape = csa_ud()
    fault(tape)
    found = failed(tape.check(tmp_path)) & RULES
    assert rules <= found, found


def test_every_rule_is_kept(tmp_path):
    verdicts = csa_ud().check(tmp_path)
    assert {verdicts[rule].outcome for rule in RULES} == {Outcome.PASS}
    assert verdicts["csa.probes"].checked == 1
    assert verdicts["csa.settled"].checked == len(csa_ud().sent(Nack, BACK_UP))


def test_a_trimmed_packet_may_come_once_more_behind_its_nack(tmp_path):
    """A link doubled it."""
    tape = csa_ud()
    number, nack = tape.sent(Nack, BACK_UP)[0]
    came = max(each for each in tape.data(link=DOWN) if each < number)
    lab = tape.lab(came)
    for each in tape.everywhere(number):
        tape.say(each, dataclasses.replace(nack, trimmed=((lab["path"], lab["number"]),)))
    tape.copy(came, before=number + 1, time_ns=tape.frame(number).time_ns)
    verdicts = tape.check(tmp_path)
    assert verdicts["csa.settled"].outcome is Outcome.PASS


@pytest.mark.parametrize("links", [(UP, BACK_UP), (DOWN, BACK_UP)], ids=str)
def test_one_link_of_a_direction_is_enough_to_find_what_it_shows(tmp_path, links):
    tape = csa_ud()
    settles(tape, 0, {0: 100, 1: 100, 2: 100})
    verdicts = tape.only(*links).check(tmp_path)
    assert failed(verdicts) & RULES == {"csa.settled"}
    numbered = verdicts["csa.numbers"].outcome
    assert numbered is (Outcome.PASS if UP in links else Outcome.NOT_APPLICABLE)
