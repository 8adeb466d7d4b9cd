# SPDX-License-Identifier: GPL-2.0-or-later
"""What a requester sends, whatever becomes of it: PSNs, opcodes, lengths, and the same again."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.evidence import Indices, Mask
from softroce_lab.check.opcodes import Family
from softroce_lab.check.rc.case import Case, named
from softroce_lab.check.rc.packets import Requests
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.faults.opcodes import opcode_name
from softroce_lab.telemetry.packets import Has, Packets

RULES = Rules()
_SAME = ("opcode", "payload_bytes", "remote_address", "rkey", "dma_length", "swap_or_add",
         "compare", "immediate")  # fmt: skip


@RULES.rule(
    "rc.opcode-sequence",
    "First, Middle and Last of one operation follow each other; only a Last or an Only ends",
    "IBA 9.7.4.1, opcode sequence",
    is_proven=True,
)
def check_opcodes(case: Case) -> None:
    """Each two packets of successive PSNs."""
    check_sequence(case.near_requester.requests, case.tally["opcode-sequence"])


def check_sequence(requests: Requests, tally: Tally) -> None:
    """The same, of requests of any sender."""
    bad, checked = _out_of_sequence(requests)
    tally.passed(checked - len(bad))
    for one, other in bad:
        stated = " and ".join(opcode_name(int(requests.opcode[each])) for each in (one, other))
        tally.failed(
            (requests.number[one], requests.number[other]),
            f"{stated} follow each other at {named(int(requests.psn[other]))}",
        )


def _out_of_sequence(requests: Requests) -> tuple[list[tuple[int, int]], int]:
    """Neighbours by PSN that may not be neighbours, and how many there are."""
    once = requests.once
    one, other = once[:-1], once[1:]
    follows = requests.end[one] == requests.psn[other]
    goes_on = ~requests.begins[other] & (requests.family[one] == requests.family[other])
    fine = np.where(requests.ends[one], requests.begins[other], goes_on)
    wrong = np.flatnonzero(follows & ~fine)
    pairs = list(zip(one[wrong].tolist(), other[wrong].tolist(), strict=True))
    return pairs, int(np.count_nonzero(follows))


@RULES.rule(
    "rc.length",
    "First and Middle packets are as long as the path MTU, Last and Only not longer, and a WRITE's "
    "add up to its RETH's DMA length",
    "IBA 9.7.4.1.6",
    is_proven=True,
)
def check_lengths(case: Case) -> None:
    """Each packet by its place in the message, and each WRITE as a whole."""
    seen = case.near_requester
    check_packet_lengths(seen.requests, seen.path_mtu, case.tally["length"])
    check_message_lengths(seen.requests, case.tally["length"])


def check_packet_lengths(requests: Requests, mtu: int, tally: Tally) -> None:
    """First, Middle, Last and Only."""
    carries = np.isin(requests.family, (Family.SEND, Family.WRITE))
    once = requests.once[carries[requests.once]]
    size, begins, ends = (
        column[once] for column in (requests.payload_bytes, requests.begins, requests.ends)
    )
    fits = np.where(ends, size <= mtu, size == mtu) & (begins | ~ends | (size > 0))
    tally.passed(int(np.count_nonzero(fits)))
    for at in once[~fits].tolist():
        tally.failed(
            [requests.number[at]],
            f"{opcode_name(int(requests.opcode[at]))} of {requests.payload_bytes[at]} bytes at "
            f"{named(int(requests.psn[at]))}, where the path MTU is {mtu}",
        )


def check_message_lengths(requests: Requests, tally: Tally) -> None:
    """WRITEs that were seen from First to Last, or Only."""
    once = requests.once
    if not len(once):
        return
    breaks = requests.begins[once].copy()
    breaks[1:] |= requests.psn[once][1:] != requests.end[once][:-1]
    breaks[0] = True
    starts = np.flatnonzero(breaks)
    sums = np.add.reduceat(requests.payload_bytes[once], starts)
    first, last = once[starts], once[np.append(starts[1:], len(once)) - 1]
    whole = requests.begins[first] & requests.ends[last]
    whole &= (requests.family[first] == Family.WRITE) & (requests.family[last] == Family.WRITE)
    wrong = np.flatnonzero(whole & (sums != requests.dma_length[first]))
    tally.passed(int(np.count_nonzero(whole)) - len(wrong))
    for at in wrong.tolist():
        tally.failed(
            (requests.number[first[at]], requests.number[last[at]]),
            f"a WRITE of {requests.dma_length[first[at]]} bytes, by its RETH, carries {sums[at]}",
        )


@RULES.rule(
    "rc.retransmit-same",
    "a PSN that is sent again carries the same operation, addresses and payload",
    "IBA 9.7.3.2, C9-71",
    is_proven=True,
)
def check_again(case: Case) -> None:
    """Each retransmitted packet, with the one before it of the same PSN.

    Its payload may differ if the responder acknowledged the packet before: it discards duplicates
    (IBA 9.7.5.1.3). A ring collective overwrites its buffer with the next step's data: that data
    proves receipt of the earlier step, before an acknowledgement arrives.
    """
    requests, tally = case.near_requester.requests, case.tally["retransmit-same"]
    order = np.lexsort((requests.place, requests.psn))
    same = np.flatnonzero(requests.psn[order][1:] == requests.psn[order][:-1])
    one, other = order[same], order[same + 1]
    differs = _differences(case.evidence.packets, requests.rows[one], requests.rows[other])
    harmless = (differs == 1 << len(_SAME)) & _was_there(case, requests, other)
    if harmless.any():
        tally.notes_that("payloads that were overwritten after the responder had them")
    differs[harmless] = 0
    tally.passed(int(np.count_nonzero(differs == 0)))
    for at in np.flatnonzero(differs).tolist():
        bits = int(differs[at])
        names = [name for bit, name in enumerate((*_SAME, "payload")) if bits >> bit & 1]
        tally.failed(
            (requests.number[one[at]], requests.number[other[at]]),
            f"{named(int(requests.psn[one[at]]))} sent again with another "
            + " and ".join(name.replace("_", " ") for name in names),
        )
    _check_rest(case, requests, tally)


def _was_there(case: Case, requests: Requests, again: Indices) -> Mask:
    """Whether the responder had acknowledged packets before they were sent again."""
    answers = case.near_responder.answers
    through = np.maximum.accumulate(np.concatenate(([0], answers.through)))
    stated = through[np.searchsorted(answers.place, requests.place[again])]
    there: Mask = stated > requests.psn[again]
    return there


def _differences(packets: Packets, one: Indices, other: Indices) -> Indices:
    """For each pair a bit for each column that differs, and one for the payload."""
    differs = np.zeros(len(one), np.int64)
    for bit, name in enumerate(_SAME):
        column = packets[name]
        differs |= (column[one] != column[other]).astype(np.int64) << bit
    hashed = packets["has"][one] & packets["has"][other] & Has.PAYLOAD_HASH != 0
    payload = packets["payload_hash"]
    differs |= (hashed & (payload[one] != payload[other])).astype(np.int64) << len(_SAME)
    return differs


def _check_rest(case: Case, requests: Requests, tally: Tally) -> None:
    """READs that request the rest of an earlier one: its remaining range."""
    reads = requests.once[requests.family[requests.once] == Family.READ]
    if not len(reads):
        return
    is_read = requests.family == Family.READ
    whole = np.searchsorted(requests.psn[reads], requests.psn, "right") - 1
    into = requests.psn - requests.psn[reads][np.maximum(whole, 0)]
    left = requests.end[reads][np.maximum(whole, 0)] - requests.psn
    rest = np.flatnonzero(is_read & (whole >= 0) & (into > 0) & (left > 0))
    if not case.knows_path_mtu:
        tally.doubts("how much a READ's packets carry, no packet tells (--path-mtu)", len(rest))
        return
    mtu, address = case.near_requester.path_mtu, case.evidence.packets["remote_address"]
    for at in rest.tolist():
        of = reads[whole[at]]
        offset = int(into[at]) * mtu
        at_address = int(address[requests.rows[of]]) + offset
        fits = int(address[requests.rows[at]]) == at_address
        if fits and requests.dma_length[at] == requests.dma_length[of] - offset:
            tally.passed()
        else:
            tally.failed(
                (requests.number[of], requests.number[at]),
                f"a READ asked for again from {named(int(requests.psn[at]))} on, of other bytes",
            )
