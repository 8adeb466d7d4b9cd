# SPDX-License-Identifier: GPL-2.0-or-later
"""The event log: what queue pairs did, a JSON object a line (docs/reference/event-log.md).

The engine's thread puts records into a ring, a native thread formats and writes them
(native/endpoint/event_log.hpp). Several RNICs may append to one file; the lines of each are in the
order of time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softroce_lab import _native
from softroce_lab.errors import RunError, UserError
from softroce_lab.telemetry.rundir import give_to_user

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

SCHEMA_VERSION = 1
VARIABLE = "SOFTROCE_EVENT_LOG"
"""Environment: the file that every `Context` of an endpoint logs to, unless it gets another."""

_TAIL_BYTES = 1 << 16


COMMON = frozenset({"time_ns", "event"})
"""Members of every line; beside them `host`, and `run` where a file holds several."""

_NAMED = "qp peer operation step message"  # of a striped message
_COUNTED = f"{_NAMED} bytes packets"
_COMPLETION = "qp wr_id opcode status bytes signaled"
_TABLE: tuple[tuple[str, ...], ...] = (
    (
        "log_opened",
        "the first line of a host; `wall_ns` is CLOCK_REALTIME at `time_ns`",
        "schema_version wall_ns pid",
    ),
    (
        "log_closed",
        "the last line of a host; it is missing if the process was killed",
        "records lost",
    ),
    ("lost", "so many events are missing near this line", "records"),
    ("state", "a queue pair changed its state", "qp from to"),
    ("post_send", "a send was posted", "qp wr_id opcode bytes", _COUNTED),
    ("post_recv", "a receive was posted, but not to a shared queue", "qp wr_id bytes", _COUNTED),
    (
        "sent",
        "the last packet left for the first time; of a READ: the PSNs of its response",
        "qp wr_id bytes psn last_psn",
        _COUNTED,
    ),
    (
        "retransmit",
        "RC: these PSNs are to be sent again, unless an acknowledgement comes first; "
        "striped: these packets of a message",
        "qp reason psn last_psn",
        f"{_NAMED} reason packets index last_index",
    ),
    (
        "timeout",
        "the timer of a queue pair ended; its oldest PSN that is not acknowledged",
        "qp psn",
    ),
    ("ack_received", "everything up to this PSN is acknowledged", "qp psn"),
    ("ack_sent", "this PSN and all before it were acknowledged", "qp psn"),
    ("nak_received", "the peer refused this PSN", "qp psn nak"),
    ("nak_sent", "this PSN was refused", "qp psn nak"),
    (
        "rnr_nak_received",
        "the peer has no receive; it asks to wait for `timer_ns`",
        "qp psn timer_ns",
    ),
    ("rnr_nak_sent", "no receive is posted", "qp psn timer_ns"),
    ("response_sent", "the result of a READ or an atomic has left", "qp psn last_psn"),
    ("out_of_sequence", "a request came too early", "qp psn expected_psn"),
    ("duplicate_request", "a request came again", "qp psn expected_psn"),
    (
        "dropped",
        "the queue pair did not accept a packet; `reason` is the counter's name",
        "qp psn reason",
    ),
    (
        "completion",
        "a request or a receive ended; `signaled`: with an entry in its queue",
        _COMPLETION,
        f"{_COMPLETION} {_NAMED}",
    ),
    ("first_packet", "the first packet of a message arrived", _COUNTED),
    ("tail_seen", "the last packet arrived, and others are missing", _COUNTED),
    ("receive_complete", "all packets of a message arrived", _COUNTED),
    ("timer", "a timer of a message ended", _COUNTED),
    ("no_receive", "packets without a posted receive; at most one line in a millisecond", _COUNTED),
    ("too_long", "packets of a message that is longer than its receive; likewise", _COUNTED),
    ("late_packet", "packets of a message that has ended; likewise", _COUNTED),
    ("gap", "at the receiver: so many packets were overtaken and are missing", _COUNTED),
    ("loss", "at the sender: a NACK says that so many packets are lost", f"{_COUNTED} reason"),
    ("parity", "the parity of a part of a message may be computed and sent", _COUNTED),
    ("chunk", "at the receiver: what lacks of a part can be restored from its parity", _COUNTED),
    ("trimmed", "at the receiver: a queue cut off the payload of a missing packet", _COUNTED),
    (
        "parity_sent",
        "`csa_ud`: so many packets of parity leave behind packets `index` to `last_index`; "
        "`reason`: `idle` or `gain`; `loss_ppm`: the measured loss, packets in 10^6",
        f"{_NAMED} reason packets index last_index loss_ppm",
    ),
    ("restored", "this packet of a message was restored from parity", f"{_NAMED} index"),
    ("peer_timer", "a timer of a peer ended", "qp peer"),
    ("control_received", "a control message arrived", "qp peer bytes"),
    ("control_sent", "a control message left", "qp peer bytes"),
    (
        "policy",
        "an action of the transport, a row of events.parquet; after all other lines",
        "act message packets",
    ),
)
MEANINGS: Mapping[str, str] = {event: meaning for event, meaning, *_ in _TABLE}
EVENTS: Mapping[str, tuple[frozenset[str], ...]] = {
    event: tuple(frozenset(form.split()) for form in forms) for event, _, *forms in _TABLE
}
"""Members of each event's lines beside the common ones; two sets: of a QP, of a striped message."""


@dataclasses.dataclass(frozen=True, slots=True)
class Totals:
    """What became of the records of a log."""

    records: int
    lost: int

    def __str__(self) -> str:
        lost = f", {self.lost:,} more were lost" if self.lost else ""
        return f"{self.records:,} events{lost}"


def create(path: Path) -> Path:
    """An empty file for logs to append to, the user's behind sudo; its absolute path. UserError."""
    try:
        path.write_bytes(b"")
        give_to_user(path)
    except OSError as error:
        raise UserError(f"cannot write the event log {path}: {error.strerror}") from error
    return path.resolve()


class EventLog:
    """Logs what an endpoint's queue pairs do, from now on; an endpoint has one log at a time."""

    def __init__(self, endpoint: Endpoint, path: Path | str, **names: str) -> None:
        """`names` begin every line, such as host="h1". RunError if the file cannot be opened."""
        self.path = Path(path)
        self._endpoint = endpoint
        self._names = names
        head = "".join(f"{json.dumps(key)}:{json.dumps(value)}," for key, value in names.items())
        try:
            self._native = _native.open_event_log(endpoint, os.fspath(path), head)
        except OSError as error:
            raise RunError(f"cannot write the event log {path}: {error}") from error
        self._open = True

    def close(self, acts: Iterable[Mapping[str, Any]] = ()) -> Totals:
        """Write the rest and the actions of the transport. Returns a summary."""
        if self._open:
            self._open = False
            _native.close_event_log(self._endpoint, self._native)
            self._append(acts)
        return Totals(self._native.written, self._native.lost)

    @property
    def failure(self) -> str | None:
        """Why it stopped writing, if it did."""
        number = self._native.error
        return os.strerror(number) if number else None

    def _append(self, acts: Iterable[Mapping[str, Any]]) -> None:
        lines = [
            json.dumps({"time_ns": act["time_ns"], **self._names, **act}, separators=(",", ":"))
            for act in acts
        ]
        if lines and not self.failure:
            with self.path.open("ab", buffering=0) as file:
                file.write(("\n".join(lines) + "\n").encode())


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log as they stand in the file.

    A last one that is torn, because its writer was killed, is left out. ValueError for others that
    are no JSON.
    """
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def totals(path: Path) -> Totals:
    """Of all logs that were closed last in a file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read().split(b"\n")[:-1]
    closed = [json.loads(line) for line in tail if b'"event":"log_closed"' in line]
    return Totals(sum(c["records"] for c in closed), sum(c["lost"] for c in closed))
