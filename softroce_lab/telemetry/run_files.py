# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a run directory and the columns of its tables, each with what it holds.

The reference is made from these entries, and a test compares the columns with those of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class File(NamedTuple):
    name: str
    about: str
    columns: Mapping[str, str] = {}
    """Of a table: what each column holds. Times are in ns since the run began; -1 is never."""


_RUN = {"transport": "label of the run's transport", "seed": "seed of the run"}
_NAME = {
    "operation": "operation of the message; 0 for RC",
    "step": "step of the operation; 0 for RC",
    "message": "number of the message in its step; 0 for RC",
    "index": "index of the packet in the message; 0 for RC",
}
_RC = {
    "qpn": "number of the destination's queue pair, of RC",
    "psn": "packet sequence number, of RC",
}
_STATUS = "an `ibv_wc_status`; 0 is success, -1 means not completed when the run ended"

FILES = (
    File("manifest.json", "inputs, seeds, figures, counters, fidelity and verdicts of all runs"),
    File("experiment.json", "the experiment with all that it named; `lab results rerun` runs it"),
    File("inputs/", "copies of policies and GOAL files that the experiment named"),
    File("links.json", "figures of every directed link, by run"),
    File("stats.json", "final counters of every host and its queue pairs, by run"),
    File("trace.pcapng", "captured packets; of several runs `trace-LABEL-SEED.pcapng` each"),
    File("report.html", "the page of `lab results report`, if it was written here"),
    File(
        "messages.parquet",
        "one row for each message, in the order of the workload",
        _RUN
        | {
            "source": "host that sends",
            "destination": "host that receives",
            "operation": "operation of the workload, from 0",
            "step": "step of the operation, from 0",
            "message": "number of the message in its step",
            "bytes": "length of the message",
            "packets": "packets of the message",
            "retransmitted": "retransmissions of its packets",
            "duplicates": "arrivals of packets that had arrived before, until the message was "
            "whole; later ones are in stats.json alone (`rx_duplicate`)",
            "status": _STATUS,
            "posted_ns": "when the send was posted",
            "first_sent_ns": "when the first packet left",
            "first_received_ns": "when the first packet arrived",
            "received_ns": "when the message was completely received",
            "completed_ns": "when the send completed at the sender",
            "arrival_ns": "of `open-loop`: when the flow arrived",
            "alone_ns": "of `open-loop`: the flow's time alone on the empty fabric",
            "after_warm_up": "whether figures count the message; of runs with a warm-up",
        },
    ),
    File(
        "events.parquet",
        "what fault rules did to packets, and what transports did",
        _RUN
        | {
            "time_ns": "when",
            "source": "`injector`, or the host that acted",
            "event": "`drop`, `cut`, `corrupt`, `duplicate` or `reorder`; or a control message or "
            "an action of the transport",
            "link": "directed link of a rule",
            "rule": "name of the rule",
            "packet_kind": "`data`, `parity`, `control`, `probe`, `report` or `other`",
        }
        | _NAME
        | {
            "attempt": "transmission of the packet, from 0",
            "packets": "number of packets of an action",
            "src": "source address of the packet",
            "dst": "destination address of the packet",
            "sport": "UDP source port of the packet",
            "psn": "packet sequence number",
            "qpn": "number of the destination's queue pair",
        },
    ),
    File(
        "recovery.parquet",
        "what was done about losses, in the order of time, at most 1,048,576 rows a run",
        _RUN
        | {
            "time_ns": "when",
            "host": "the host that acted",
            "event": "`retransmit` (a decision), `sent_again`, `nack_sent`, `nack_received`, "
            "`lost` (not by a rule, virtual clock), `timeout`, `nak_sent`, `nak_received`, "
            "`parity_sent` (packets of parity, behind the range that they cover) or `restored` "
            "(from parity, at the receiver)",
            "reason": "why a sender decided to retransmit, or to send parity: it had nothing else "
            "to send (`idle`), or the round trip that parity may save is worth it (`gain`)",
            "cause": "what lost a packet: `link down`, `full queue` and others",
            "link": "directed link of a lost packet",
            "packet_kind": "kind of a packet that was lost or sent again",
            "src": "source address of the packet that the row is about",
            "dst": "destination address of the packet that the row is about",
        }
        | _NAME
        | {
            "last_index": "last packet of the range that begins with `index`",
            "packets": "packets of the range; of a NACK, how many are missing; of parity, how many "
            "packets of parity",
            "attempt": "earlier transmissions; 0 for RC",
            "sport": "UDP source port of the packet",
            "qpn": "number of the destination's queue pair, of RC",
            "psn": "packet sequence number, of RC",
            "last_psn": "last packet of the range that begins with `psn`",
        },
    ),
    File(
        "repairs.parquet",
        "virtual clock: one row for each data packet whose first transmission was lost, at most "
        "1,048,576 rows a run",
        _RUN
        | {
            "dropped_ns": "when the first transmission was lost",
            "arrived_ns": "when the payload arrived",
            "cause": "what lost the packet: `rule`, `link down`, `full queue`, `trimmed`, "
            "`corrupted` or `no route`",
            "src": "source address",
            "dst": "destination address",
        }
        | _NAME
        | _RC,
    ),
    File(
        "samples.parquet",
        "virtual clock: queues, packets in flight and windows over time, one row for each change",
        _RUN
        | {
            "time_ns": "when it was looked at",
            "figure": "`queue_bytes` of a link; `in_flight_packets` or `window_packets` of a host",
            "at": "a directed link or a host",
            "value": "the new value",
        },
    ),
    File(
        "shift.parquet",
        "transport `shift`: one row for each transition of a queue pair with a backup",
        _RUN
        | {
            "time_ns": "when",
            "host": "where it happened",
            "peer": "the host at the other end",
            "qp": "number of the queue pair at the default NIC",
            "peer_qp": "the same at the other end",
            "epoch": "even: the default NIC carries the traffic",
            "side": "`sender` or `receiver`",
            "before": "state before",
            "after": "state after; the same state means that only the numbers are new",
            "why": "reason",
            "consumed": "requests that the peer had executed",
            "resubmitted": "requests that were posted again",
            "receives": "receives that were posted again",
        },
    ),
    File(
        "program_messages.parquet",
        "runs of programs: one row for each work request that met a loss or failed",
        _RUN
        | {
            "source": "host that sends",
            "destination": "host that receives",
            "process": "number of the process",
            "program": "name of the program",
            "qpn": "number of the sender's queue pair",
            "peer_qpn": "number of the receiver's queue pair",
            "message": "earlier messages of the queue pair",
            "opcode": "operation of the work request",
            "bytes": "length of the message",
            "psn": "first packet sequence number",
            "last_psn": "last packet sequence number",
            "status": _STATUS,
            "posted_ns": "when the work request was posted",
            "sent_ns": "when all of its packets had left once",
            "completed_ns": "when the work request completed",
        },
    ),
)

SWEEP_COLUMNS = {
    "run": "number of the run in the sweep, from 0",
    "transport": "label of the transport",
    "protocol": "the transport behind the label",
    "congestion_control": "congestion control of the run",
    "seed": "seed of the run",
    "clock": "`virtual` or `real`",
    "verdict": "`passed`; `failed`: a message or a byte was wrong; `error`: there is no result",
    "reasons": "why the run did not pass",
    "notes": "what to know about its links and faults",
    "wall_s": "real time that the run took, seconds",
    "cpu_s": "processor time that the run took, seconds",
    "version": "version of softroce_lab",
    "commit": "commit of the code, `-dirty` behind it if files differed; null in a wheel",
    "run_dir": "run directory, if it was kept",
    "key": "digest of all that decides the result",
}
"""Of a sweep's runs.parquet, beside a column for each entry of `over` and for each figure."""
