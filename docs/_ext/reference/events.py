# SPDX-License-Identifier: GPL-2.0-or-later
"""The event log, from its schema."""

from __future__ import annotations

from reference import markdown
from reference.markdown import code, prose
from softroce_lab.telemetry import event_log

_ABOUT = """\
The event log has what queue pairs did, as one JSON object a line. It is off by default. There are
three ways to switch it on:

| for | how |
|---|---|
| `lab demo` | `--event-log FILE` |
| a program of verbs | `SOFTROCE_EVENT_LOG=FILE` in its environment |
| a Python program | `Context(..., event_log=FILE)` of `softroce_lab.verbs` |

Every line has `time_ns` (CLOCK_MONOTONIC), `event`, and `host`. Lines of `lab demo` have `run`, the
transport. PSNs have 24 bits, so the range from `psn` to `last_psn` may wrap. The lines of one host
are in the order of time. If the ring of events is full, the disk is full, or the file has 2 GiB,
events are lost and counted.

    jq -c 'select(.event == "retransmit") | [.host, .reason, .psn, .last_psn]' log.jsonl

An event with two rows means something for queue pairs, and something else for striped messages."""


def page() -> str:
    """Every event, with the members of its lines."""
    rows = [
        (code(event), ", ".join(code(each) for each in sorted(members)),
         prose(event_log.MEANINGS[event]))
        for event, sets in event_log.EVENTS.items()
        for members in sets
    ]  # fmt: skip
    return markdown.page("Event log", _ABOUT, markdown.table(["event", "members", "meaning"], rows))
