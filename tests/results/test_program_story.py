# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab results explain` of unmodified programs: which message was lost where, and when."""

import dataclasses
import json
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from softroce_lab import topology
from softroce_lab.cli.app import app
from softroce_lab.results.incidents import What
from softroce_lab.results.program_story import ProgramRun
from softroce_lab.results.recorded import Recorded
from tests.results import programs_made
from tests.results.losses_made import HERE, PEER_QPN, QPN, THERE, ended, record

LAST_PSN = (1 << 24) - 2  # so that the second message's PSNs wrap around


def _drop(at_us, psn, *, back=False, event="drop"):
    ends = ("10.0.0.2", "10.0.0.1") if back else ("10.0.0.1", "10.0.0.2")
    return (at_us * 1000, event, "h1->s1", "lossy", *ends, QPN if back else PEER_QPN, psn)


DROPS = [
    _drop(12, LAST_PSN - 1), _drop(13, 1), _drop(25, 1), _drop(70, 9, back=True),
    _drop(5, 77777), _drop(13, 3, event="corrupt"), _drop(82, 21, back=True),
]  # fmt: skip
RECORDS = {
    "h1": [
        record("nak_received", 20, psn=LAST_PSN - 1, **HERE),
        record("retransmit", 21, psn=LAST_PSN - 1, last_psn=3, code=1, **HERE),
        record("message", 30, posted_us=1, sent_us=10, psn=LAST_PSN - 3, last_psn=LAST_PSN,
               bytes=8192, **HERE),
        record("timeout", 48, psn=1, **HERE),
        record("retransmit", 49, psn=1, last_psn=3, code=0, **HERE),
        record("message", 60, posted_us=2, sent_us=11, psn=LAST_PSN + 1, last_psn=3, bytes=9000,
               number=1, **HERE),
        record("retransmit", 75, psn=8, last_psn=8, code=0, **HERE),
        record("message", 79, posted_us=65, sent_us=66, psn=8, last_psn=11, bytes=8000,
               number=2, opcode=2, **HERE),
        record("retransmit", 90, psn=20, last_psn=23, code=0, **HERE),
        record("message", 95, posted_us=80, sent_us=81, psn=20, last_psn=23, bytes=8000,
               number=3, opcode=4, **HERE),
        record("message", 99, code=12, posted_us=96, bytes=7, number=4, **HERE),
    ],
    "h2": [record("nak_sent", 16, psn=LAST_PSN - 1, **THERE)],
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    under = tmp_path_factory.mktemp("losses")
    plan = topology.load("two-hosts")
    messages, recorded, missed = ended(plan, under, RECORDS)
    names = ("time_ns", "event", "link", "rule", "src", "dst", "qpn", "psn")
    events = dict(zip(names, map(list, zip(*DROPS, strict=True)), strict=True))
    columns = {
        name: np.array(each, dtype=object if isinstance(each[0], str) else np.int64)
        for name, each in events.items()
    }
    columns["source"] = np.full(len(DROPS), "injector", dtype=object)
    columns["packet_kind"] = np.full(len(DROPS), "other", dtype=object)
    run = dataclasses.replace(
        programs_made.found(), program_messages=messages, recoveries=recorded, events=columns,
        facts=programs_made.found().facts | {"recoveries_not_recorded": missed},
    )  # fmt: skip
    with mock.patch.object(programs_made, "found", return_value=run):
        return programs_made.programs(under).directory


def lab(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.stderr + str(done.exception)
    return done.stdout


@pytest.fixture(scope="module")
def stories(made):
    recorded = Recorded(made)
    known = ProgramRun.of(recorded, recorded.runs[0])
    return [known.story(row) for row in range(5)]


def what(story):
    return [(each.what, each.first, each.time_ns // 1000) for each in story.incidents]


def test_a_drop_its_nak_and_the_retransmission(stories):
    assert what(stories[0]) == [
        (What.DROP, 2, 12), (What.CONTROL, 2, 16), (What.CONTROL, 2, 20), (What.DECISION, 2, 21),
    ]  # fmt: skip
    drop = stories[0].incidents[0]
    assert (drop.where, drop.why) == ("h1->s1", "lossy")
    assert (stories[0].packets, stories[0].sent_again) == (4, 2)


def test_psns_wrap_around_and_a_packet_is_lost_twice(stories):
    second = stories[1]
    assert second.psns == (LAST_PSN + 1, 3)
    assert what(second) == [
        (What.DROP, 2, 13), (What.DECISION, 0, 21), (What.DROP, 2, 25), (What.TIMEOUT, 2, 48),
        (What.DECISION, 2, 49),
    ]  # fmt: skip
    titles = [(part.title, part.length_ns // 1000) for part in second.parts]
    assert titles == [
        ("behind earlier messages", 11), ("until it was to be sent again (nak)", 8),
        ("retransmission, lost again", 4), ("until it was to be sent again (timeout)", 24),
        ("until its acknowledgement", 11),
    ]  # fmt: skip
    assert sum(length for _, length in titles) * 1000 == second.taken_ns


def test_who_waited_for_earlier_messages(stories):
    """Those of a queue pair end in order: a message holds it up from the end of the one before."""
    assert [each.held_ns for each in stories] == [29_000, 30_000, 14_000, 15_000, None]
    assert [each.lost_meanwhile for each in stories] == [2, 1, 0, 0, 0]


def test_a_lost_acknowledgement_is_no_lost_transmission(stories):
    assert [each.kind for each in stories[2].incidents] == ["control", ""]
    assert stories[2].count(What.DROP) == 0


def test_a_lost_response_of_a_read_is_one(stories):
    assert stories[3].opcode == "RDMA_READ"
    assert [each.kind for each in stories[3].incidents] == ["response", ""]
    assert stories[3].count(What.DROP) == 1


def test_a_failed_message_is_first_and_the_slowest_are_next(made):
    found = json.loads(lab("results", "explain", made, "--worst", 3, "--json"))["stories"]
    assert [each["message"] for each in found] == [
        f"h1->h2:{QPN}/4", f"h1->h2:{QPN}/1", f"h1->h2:{QPN}/0"
    ]  # fmt: skip
    assert found[0]["status"] == "IBV_WC_RETRY_EXC_ERR"
    assert (found[0]["psn"], found[1]["psn"]) == (None, LAST_PSN + 1)
    assert found[1]["program"] == "ib_write_bw"


def test_the_story_in_words(made):
    printed = lab("results", "explain", made, "--message", f"{QPN}/0")
    for line in (
        f"rc/1: RDMA_WRITE h1->h2:{QPN}/0, 8 KiB in 4 packets, took 29 us.",
        "ib_write_bw (process 77, rank 3), queue pair 0x123 to 0x456, "
        f"PSNs {LAST_PSN - 3} to {LAST_PSN}.",
        "1 transmission lost, 2 to be sent again. Of other messages of the queue pair 2 were lost "
        "meanwhile.",
        "dropped on h1->s1: lossy",
        "h1 decides to retransmit 2 to 3: nak",
        "In all of rc/1: 6 packets lost, ACKs and NAKs among them; 5 messages outstanding "
        "while a loss was repaired, or failed, of which 1 failed.",
    ):
        assert line in printed, printed
    read = lab("results", "explain", made, "--message", f"{QPN}/3")
    assert "X-- response --" in read.replace("X--- response", "X-- response")


def test_losses_by_program_and_queue_pair(made):
    assert lab("results", "explain", made).splitlines()[-1] == (
        "ib_write_bw (process 77, rank 3), h1->h2, queue pair 0x123 to 0x456: 5 transmissions "
        "lost, 15 to be sent again, 1 of 5 recorded messages failed."
    )
    [pair] = json.loads(lab("results", "explain", made, "--json"))["queue_pairs"]
    assert (pair["rank"], pair["qpn"], pair["lost"], pair["failed"]) == (3, QPN, 5, 1)
    lab("results", "report", made)
    page = (made / "report.html").read_text()
    assert "ib_write_bw (process 77, rank 3), h1-&gt;h2, queue pair 0x123 to 0x456" in page


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--message", "h1->h2:1/9"), "no message 'h1->h2:1/9' is recorded of rc/1"),
        (("--step", 0), "rc/1: programs have no steps"),
    ],
)
def test_what_is_not_there(made, options, why):
    done = CliRunner().invoke(app, ["results", "explain", str(made), *map(str, options)])
    assert done.exit_code == 2
    assert why in str(done.exception) + done.stderr


def test_a_run_without_losses_has_no_story_and_says_so(made, tmp_path):
    messages, recorded, _ = ended(topology.load("two-hosts"), tmp_path, {"h1": []})
    run = dataclasses.replace(programs_made.found(), program_messages=messages, recoveries=recorded)
    with mock.patch.object(programs_made, "found", return_value=run):
        directory = programs_made.programs(tmp_path).directory
    assert lab("results", "explain", directory) == (
        "In all of rc/1: 0 packets lost, ACKs and NAKs among them; 0 messages outstanding "
        "while a loss was repaired, or failed, of which 0 failed.\n"
    )
