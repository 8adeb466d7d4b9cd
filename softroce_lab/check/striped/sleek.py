# SPDX-License-Identifier: GPL-2.0-or-later
"""SLEEK, the option of `uet_rud`: which of a connection's retransmissions it permits.

A retransmission that no NACK, timer or recovery explains is taken for a probe.
"""

from __future__ import annotations

import numpy as np

from softroce_lab.check.striped.messages import Striped
from softroce_lab.check.striped.psns import Connection

_LEAST_PACKETS = 5  # out of order, that begin a recovery
_PROBE_RTTS, _REPEAT_RTTS = 3, 5


class Sleek:
    """By transmission: `why_not`, what forbids it; `early`, by how many ns a probe comes too early.

    `probes`: their transmissions, in time, at least `spacing_ns` apart.
    """

    def __init__(self, view: Striped, connection: Connection) -> None:
        self._view, self._connection = view, connection
        self.why_not: dict[int, str] = {}
        self.probes: list[int] = []
        self.early: dict[int, int] = {}
        options, rtt_ns = view.options, view.timing.initial_rtt_ns
        target_ns = rtt_ns // 4 * 3 if options.get("trimming", True) else rtt_ns
        # A probe that was answered within this time begins a recovery.
        self._quick_ns = rtt_ns + target_ns
        self.spacing_ns = min(
            self._quick_ns,
            int(options.get("probe_rtts", _PROBE_RTTS)) * rtt_ns,
            int(options.get("probe_repeat_rtts", _REPEAT_RTTS)) * rtt_ns,
        )
        self._idle_ns = connection.idle_ns
        self._begins_ns = self._recoveries(int(options.get("sleek_packets", _LEAST_PACKETS)))
        again = connection.retransmissions
        sent = view.transmissions[again]
        self._again_ns = view.time_ns(sent["at"])
        self._again_psn = np.array([connection.psn_of(one) for one in sent], dtype=np.int64)
        self._last_ns = np.full(len(connection.first), -1, dtype=np.int64)  # sent again, by PSN
        self._last_ns[self._again_psn] = self._again_ns
        before_ns = view.time_ns(view.transmissions["at"][again - 1])
        self._no_probes = [
            self._why_no_probe(*each)
            for each in zip(
                self._again_psn.tolist(), before_ns.tolist(), self._again_ns.tolist(), strict=True
            )
        ]
        self._may_be_probe = np.array([not why for why in self._no_probes], dtype=np.bool_)
        self._recovered_ns: dict[int, int] = {}  # by PSN, the last time
        self._may_have_been_probe: set[int] = set()  # PSNs of which a recovery may be none
        self._due_ns = 0  # no probe leaves earlier
        for place, (number, psn) in enumerate(zip(again.tolist(), self._again_psn, strict=True)):
            self._judge(place, number, int(psn))

    def _judge(self, place: int, number: int, psn: int) -> None:
        now_ns = int(self._again_ns[place])
        if self._is_ordinary(number, now_ns):
            return
        no_probe = self._no_probes[place]
        is_first = psn not in self._recovered_ns
        may_recover = self._may_recover(psn, now_ns)
        if (is_first and may_recover) or self._follows_probe(psn, now_ns):
            self._recovered_ns[psn] = now_ns
            if is_first and not no_probe:
                self._may_have_been_probe.add(psn)
        elif no_probe:
            self.why_not[number] = no_probe
        elif (
            now_ns < self._due_ns - self._view.late_ns
            and may_recover
            and psn in self._may_have_been_probe
        ):
            self._may_have_been_probe.discard(psn)  # so the retransmission before was the probe
        else:
            self._take_for_probe(number, now_ns)

    def _take_for_probe(self, number: int, now_ns: int) -> None:
        """Each probe may have waited for its host's link since that link was last idle."""
        self.probes.append(number)
        if now_ns < self._due_ns - self._view.late_ns:
            self.early[number] = self._due_ns - now_ns
        idle_ns = self._idle_ns[int(self._view.transmissions["at"][number])]
        self._due_ns = max(self._due_ns, idle_ns) + self.spacing_ns

    def _recoveries(self, least: int) -> np.ndarray:
        """When the sender may have begun a recovery by what arrived out of order."""
        connection = self._connection
        heard_ns = np.unique(connection.heard_ns)
        known = np.searchsorted(np.sort(connection.reported_ns), heard_ns, side="right")
        base = np.searchsorted(connection.heeded_ns, heard_ns, side="right")
        return heard_ns[known - base >= least]

    def _is_ordinary(self, number: int, now_ns: int) -> bool:
        """Whether a NACK or the packet's timer explains it."""
        view = self._view
        one, before = view.transmissions[number], view.transmissions[number - 1]
        before_ns = int(view.time_ns(int(before["at"])))
        packet = int(one["index"])
        acks = self._connection.acks[int(one["message"])]
        asked = acks.wants(packet, packet, before_ns, int(one["at"]))
        return asked or now_ns - before_ns >= view.uet_rto_ns

    def _may_recover(self, psn: int, now_ns: int) -> bool:
        """Whether a recovery that packets out of order began may contain the PSN."""
        connection = self._connection
        begun = int(np.searchsorted(self._begins_ns, now_ns, side="right"))
        if not begun:
            return False
        last_ns = int(self._begins_ns[begun - 1]) + connection.way_ns
        return last_ns >= int(connection.first_ns[psn])

    def _follows_probe(self, psn: int, now_ns: int) -> bool:
        """Whether a quick answer to a probe began a recovery since the PSN was last recovered."""
        connection = self._connection
        since_ns = self._recovered_ns.get(psn, int(connection.first_ns[psn])) - connection.way_ns
        others = self._may_be_probe & (self._again_psn != psn) & (self._again_ns < now_ns)
        sent_ns = self._again_ns[others]
        answered = np.searchsorted(connection.heard_ns, np.maximum(sent_ns, since_ns))
        is_answered = answered < len(connection.heard_ns)
        answers_ns = connection.heard_ns[answered[is_answered]]
        latest_ns = np.minimum(sent_ns[is_answered] + self._quick_ns, now_ns)
        return bool(np.any(answers_ns <= latest_ns))

    def _why_no_probe(self, psn: int, before_ns: int, now_ns: int) -> str | None:
        connection = self._connection
        heard_ns = connection.heard_ns
        if not len(heard_ns) or heard_ns[0] > now_ns - self.spacing_ns:
            return "no NACK asked for it, no timer ran out, and no probe was due"
        is_missing = connection.reported_ns[:psn] > now_ns
        # A packet whose retransmission waits in its sender does not count.
        if np.all(self._last_ns[:psn][is_missing] >= before_ns):
            return None
        return "no NACK asked for it, no timer ran out, and a probe is the oldest missing packet"
