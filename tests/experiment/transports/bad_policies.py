# SPDX-License-Identifier: GPL-2.0-or-later
"""Policies that users write wrongly, and what the run has to say of each."""

HEAD = """import time
import numpy as np
from softroce_lab.recovery.api import SetTimer, Retransmit, Control
from softroce_lab.recovery.ud_rto import UdRto


class Mine(UdRto):
"""

BAD = {  # name: (the body of the class, the line that is named, what is said)
    "raises": (
        "    def on_sent(self, event, now_ns):\n        return [][3]\n",
        9, "on_sent raised IndexError: list index out of range",
    ),
    "raises at the start": (
        "    def __init__(self, view, timing, options=None):\n        self.view.paths = 3\n",
        9, "__init__ raised AttributeError",
    ),
    "returns None": (
        "    def on_sent(self, event, now_ns):\n        pass\n",
        8, "on_sent returned no list of actions",
    ),
    "returns no action": (
        "    def on_sent(self, event, now_ns):\n        return ['retransmit']\n",
        8, "on_sent returned 'retransmit', which is no action",
    ),
    "wrong handle": (
        "    def on_sent(self, event, now_ns):\n        return [SetTimer(12345, now_ns)]\n",
        8, "handle: 12345 was never the handle of a message here",
    ),
    "no such packet": (
        "    def on_sent(self, event, now_ns):\n"
        "        return [Retransmit(event.handle, np.array([event.count]))]\n",
        8, "of a message of",
    ),
    "packets that are none": (
        "    def on_sent(self, event, now_ns):\n"
        "        return [Retransmit(event.handle, [0.5])]\n",
        8, "[0.5] is no array of packet indices",
    ),
    "body of text": (
        "    def on_sent(self, event, now_ns):\n        return [Control(event.peer, 'lost')]\n",
        8, "body: 'lost' is not bytes",
    ),
    "body too long": (
        "    def on_sent(self, event, now_ns):\n"
        "        return [Control(event.peer, bytes(5000))]\n",
        8, "body: 5000 bytes, at most",
    ),
    "no such peer": (
        "    def on_sent(self, event, now_ns):\n        return [Control(99, b'x')]\n",
        8, "peer: there is no peer 99",
    ),
    "time goes back": (
        "    def on_sent(self, event, now_ns):\n        return [SetTimer(event.handle, -1)]\n",
        8, "at_ns: -1 is no time in ns",
    ),
    "actions without end": (
        "    def on_sent(self, event, now_ns):\n        while True:\n"
        "            yield SetTimer(event.handle, now_ns + 10**6)\n",
        8, "on_sent returned more than 65,536 actions",
    ),
    "loops": (
        "    def on_sent(self, event, now_ns):\n        while True:\n            now_ns += 1\n",
        (9, 10), "on_sent did not return within",
    ),
    "blocks": (
        "    def on_sent(self, event, now_ns):\n        time.sleep(1000)\n",
        9, "on_sent did not return within",
    ),
    "keeps exceptions": (
        "    def on_sent(self, event, now_ns):\n        while True:\n            try:\n"
        "                time.sleep(0.001)\n            except Exception:\n                pass\n",
        (9, 13), "on_sent did not return within",
    ),
    "time stands still": (
        "    def on_timer(self, event, now_ns):\n        return [SetTimer(event.handle, now_ns)]\n",
        8, "on_timer set 10,000 timers in a row less than 1000 ns ahead: time does not go on",
    ),
    "summary that is none": (
        "    def summary(self):\n        return {'view': self.view}\n",
        8, "summary raised TypeError",
    ),
}  # fmt: skip
