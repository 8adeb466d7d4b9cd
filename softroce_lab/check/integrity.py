# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the capture accounts for every packet: what it missed, what it cannot be read of, and
whether every packet that was captured whole has its ICRC.

Requests that were acknowledged and are not in the capture are found by the rules of RC
(`integrity.unseen`)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab import _native
from softroce_lab.check.evidence import Evidence, ends, hosts_of
from softroce_lab.check.verdict import MOST_EXHIBITS, Rules, Suite, Tally
from softroce_lab.telemetry.packets import Has, Kind

RULES = Rules()

# Notes of the reader about bytes, or packets, that are lost to the checkers.
_LOSSES = (
    "the file ends in the middle",
    "what follows is neither",
    "a section of unknown version",
    "blocks of more than",
    "blocks that contradict themselves",
    "packets of interfaces that the file does not describe",
    "packets with more bytes captured",
)


@RULES.rule(
    "integrity.file",
    "the file is whole, and all of it could be read",
    "pcapng, draft-ietf-opsawg-pcapng; pcap, draft-ietf-opsawg-pcap",
)
def _check_file(evidence: Evidence, tally: Tally) -> None:
    tally.passed(len(evidence.packets))
    for note in evidence.capture.notes:
        if note.what.startswith(_LOSSES):
            # What could not be read has a number, and no row.
            packets = [note.first] if note.first in evidence.packets["number"] else []
            tally.failed(packets, f"{note.what}: {note.count}", note.count)
        else:
            tally.notes_that(f"{note.count} {note.what}")


@RULES.rule(
    "integrity.missed",
    "whoever captured missed nothing, by the file's own statistics",
    "pcapng, Interface Statistics Block: isb_ifrecv, isb_ifdrop",
)
def _check_missed(evidence: Evidence, tally: Tally) -> None:
    for number, interface in enumerate(evidence.capture.interfaces):
        name = interface.name or f"interface {number}"
        if interface.dropped is None:
            tally.doubts("interfaces without statistics")
        elif interface.dropped:
            tally.failed((), f"{name}: {interface.dropped:,} packets missed")
        else:
            tally.passed()


@RULES.rule(
    "integrity.headers",
    "packets to UDP port 4791 are RoCEv2: version, opcode and lengths fit",
    "IBA 9.2, annex A17.3.1",
)
def _check_headers(evidence: Evidence, tally: Tally) -> None:
    packets, refusals = evidence.packets, evidence.capture.refusals
    kinds = np.bincount(packets["kind"], minlength=len(Kind))
    tally.passed(int(kinds[Kind.ROCE]))
    if kinds[Kind.SHORT]:
        tally.doubts("the snap length cut headers off", int(kinds[Kind.SHORT]))
    for row in np.flatnonzero(packets["kind"] == Kind.MALFORMED).tolist():
        tally.failed([packets["number"][row]], refusals[int(packets["refusal"][row])])


@RULES.rule(
    "integrity.links",
    "the packets of each link are as many as the lab counted on it",
    "docs/reference/run-directory.md",
)
def _check_links(evidence: Evidence, tally: Tally) -> None:
    if evidence.run is None:
        return
    named = {run["run"] for run in evidence.run.runs if "run" in run}
    runs = [links for run, links in evidence.run.links.items() if run in named or not named]
    counted = _counted(runs, hosts_of(evidence))
    is_link = evidence.packets["kind"] != Kind.OTHER
    rows = np.bincount(
        evidence.packets["interface"][is_link], minlength=len(evidence.capture.interfaces)
    )
    for number, name in evidence.interface_names().items():
        if name not in counted:
            continue
        missed = evidence.capture.interfaces[number].dropped or 0
        captured = int(rows[number])
        if captured + missed == counted[name]:
            tally.passed()
        else:
            tally.failed(
                (),
                f"{name}: {captured:,} packets captured and {missed:,} missed; the lab counted "
                f"{counted[name]:,}",
            )


def _counted(runs: Iterable[Sequence[Mapping[str, Any]]], hosts: Container[str]) -> dict[str, int]:
    """Packets that came to each link, by name: what arrived, what faults took, what was lost.

    Behind a host faults take packets at the far end, which has counted them by then; but not on
    the virtual clock, which also tells what was on its way in the end.
    """
    counted: dict[str, int] = {}
    for links in runs:
        for link in links:
            came = link["received"] + link["emulator_drops"] + link.get("on_its_way", 0)
            if "on_its_way" in link or ends(link["name"])[0] not in hosts:
                came += link["injected_drops"]
            wire = link.get("wire") or {}
            counted[link["name"]] = counted.get(link["name"], 0) + came - wire.get("duplicated", 0)
    return counted


@RULES.rule(
    "icrc.right", "the last four bytes of every packet are its ICRC", "IBA 7.8.1, annex A17.3.2"
)
def _check_icrcs(evidence: Evidence, tally: Tally) -> None:
    has = evidence.packets["has"]
    is_roce = evidence.packets["kind"] == Kind.ROCE
    wrong = np.flatnonzero(is_roce & evidence.is_broken)
    tally.passed(int(np.count_nonzero(is_roce & (has & Has.ICRC_GOOD != 0))))
    if len(wrong) and evidence.rules_of_the_run("corrupt"):
        tally.doubts("a rule of the run flips bits on a link before", len(wrong))
        wrong = wrong[:0]
    for row in wrong[:MOST_EXHIBITS].tolist():
        tally.failed([evidence.packets["number"][row]], _difference(evidence, row))
    if len(wrong) > MOST_EXHIBITS:
        more = len(wrong) - MOST_EXHIBITS
        tally.failed((), "", more)
    unknown = int(np.count_nonzero(is_roce & (has & Has.ICRC_CHECKED == 0)))
    if unknown:
        tally.doubts("the snap length cut the ICRC off", unknown)


def _difference(evidence: Evidence, row: int) -> str:
    packet = evidence.packets[row]
    text = f"the ICRC is {int(packet['icrc']):#010x}"
    try:
        due = _native.icrc(evidence.capture.frame(int(packet["number"])))
    except ValueError:
        return text
    return f"{text}; of these bytes it is {due:#010x}"


SUITE = Suite.of_evidence(RULES)
