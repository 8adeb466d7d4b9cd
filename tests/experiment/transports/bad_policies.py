# SPDX-License-Identifier: GPL-2.0-or-later
"""Policies that users write wrongly, and what the run has to say of each."""

HEAD = """import time
import numpy as np
from softroce_lab.recovery.api import SetTimer, Retransmit, Control
from softroce_lab.recovery.sdr_sr import SdrSr


class Mine(SdrSr):
"""

BAD = {  # name: (the body of the class, the line that is named, what is said)
    "raises": (
        "    def on_sent(self, event, now_ns):\n        return [][3]\n",
        9, "on_sent raised IndexError: list index out of range",
    ),
    "ends the process": (
        "    def on_sent(self, event, now_ns):\n        raise SystemExit(0)\n",
        9, "on_sent raised SystemExit: 0",
    ),
    "raises without a text": (
        "    def on_sent(self, event, now_ns):\n        class Odd(Exception):\n"
        "            def __str__(self):\n                return 3\n        raise Odd\n",
        12, "on_sent raised Odd: Odd without a text",
    ),
    "returns what has no text": (
        "    def on_sent(self, event, now_ns):\n        class Odd:\n"
        "            def __repr__(self):\n                return 3\n        return [Odd()]\n",
        8, "on_sent returned Odd without a text, which is no action",
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

MESSAGE_HEAD = """import numpy as np
from softroce_lab.recovery import api, policy
from softroce_lab.recovery.policy import Feedback, MessagePolicy, PathWeights
from softroce_lab.recovery.policy import RequestStatus, Retransmit, SetTimer


class Mine(MessagePolicy):
"""


def _on_sent(returned):
    return f"    def on_sent(self, send, now_ns):\n        return {returned}\n"


_SENT = "    def on_sent(self, send, now_ns):\n"
BAD_MESSAGE = {  # the same of a MessagePolicy
    "raises": (_SENT + "        return self.view.nothing\n", 9, "on_sent raised AttributeError"),
    "raises in a generator": (
        _SENT + "        yield SetTimer(send, now_ns)\n        raise ValueError('mine')\n",
        10, "on_sent raised ValueError: mine",
    ),
    "raises where another module notices": (
        _SENT + "        return [SetTimer(send, now_ns + self.backed_off_ns(send, 'long'))]\n",
        9, "on_sent raised TypeError",
    ),
    "raises at the receiver": (
        "    def on_first_packet(self, receive, now_ns):\n        return [receive.size]\n",
        9, "on_first_packet raised AttributeError",
    ),
    "raises at the start": (
        "    def __init__(self, view, timing, options=None):\n        view.paths = 3\n",
        9, "__init__ raised AttributeError",
    ),
    "has no base": (
        "    def __init__(self, view, timing, options=None):\n        self.mine = 3\n"
        "\n" + _SENT + "        return [self.rtt_ns(send)]\n",
        12, "on_sent raised AttributeError",
    ),
    "takes too little": (
        "    def on_sent(self, send):\n        return []\n",
        8, "on_sent raised TypeError: Mine.on_sent() takes 2 positional arguments but 3 were given",
    ),
    "unknown option": (_on_sent("self.values['rto']"), 9, "on_sent raised KeyError: 'rto'"),
    "returns None": (_SENT + "        pass\n", 8, "on_sent returned no list of actions"),
    "returns an action alone": (
        _on_sent("SetTimer(send, now_ns)"), 8, "on_sent returned no list of actions",
    ),
    "returns no action": (_on_sent("['lost']"), 8, "on_sent returned 'lost', which is no action"),
    "returns an action of events": (
        _on_sent("[api.SetTimer(send.handle, now_ns)]"), 8, "which is no action",
    ),
    "no such packet": (
        _on_sent("[Retransmit(send, np.array([send.count]))]"), 8, "of a message of",
    ),
    "packet before the first": (
        _on_sent("[Retransmit(send, np.array([-1]))]"), 8, "packets: packet -1 of a message of",
    ),
    "packets that are none": (
        _on_sent("[Retransmit(send, ['all'])]"), 8, "['all'] is no array of packet indices",
    ),
    "a handle for a message": (
        _on_sent("[SetTimer(send.handle, now_ns)]"), 8, "is no message that a hook was given",
    ),
    "no copy": (
        _on_sent("[Retransmit(send, [0], copies=0)]"), 8, "copies: 0 is no number from 1 to 16",
    ),
    "too many copies": (
        _on_sent("[Retransmit(send, [0], copies=17)]"), 8, "copies: 17 is no number from 1 to 16",
    ),
    "gaps of a send": (
        _on_sent("[policy.DetectGaps(send, 0)]"), 8, "is no message that is received here",
    ),
    "a window in seconds": (
        "    def on_first_packet(self, receive, now_ns):\n"
        "        return [policy.DetectGaps(receive, 0.1)]\n",
        8, "window_ns: 0.1 is no reordering window in ns",
    ),
    "gaps without actions": (
        "    def on_first_packet(self, receive, now_ns):\n"
        "        return [policy.DetectGaps(receive, 0)]\n\n"
        "    def on_gap(self, receive, packets, now_ns):\n        return packets\n",
        11, "on_gap returned",
    ),
    "feedback for a send": (
        _on_sent("[Feedback(send)]"), 8, "is no message that is received here",
    ),
    "status of a receive": (
        "    def on_first_packet(self, receive, now_ns):\n"
        "        return [RequestStatus(receive)]\n",
        8, "is no message that is sent here",
    ),
    "time goes back": (_on_sent("[SetTimer(send, -1)]"), 8, "at_ns: -1 is no time in ns"),
    "time in seconds": (_on_sent("[SetTimer(send, 0.1)]"), 8, "at_ns: 0.1 is no time in ns"),
    "weights of other paths": (
        _on_sent("[PathWeights(send.peer, [1] * 99)]"), 8, "are no weights of",
    ),
    "no such peer": (_on_sent("[PathWeights(99, [1])]"), 8, "peer: there is no peer 99"),
    "actions without end": (
        _SENT + "        while True:\n            yield RequestStatus(send)\n",
        8, "on_sent returned more than 65,536 actions",
    ),
    "loops": (
        _SENT + "        while True:\n            now_ns += 1\n",
        (9, 10), "on_sent did not return within",
    ),
    "time stands still": (
        "    def on_send_posted(self, send, now_ns):\n        return [SetTimer(send, now_ns)]\n\n"
        "    def on_send_timer(self, send, now_ns):\n        return [SetTimer(send, now_ns)]\n",
        11, "on_send_timer set 10,000 timers in a row less than 1000 ns ahead",
    ),
    "time stands still at the receiver": (
        "    def on_receive_posted(self, receive, now_ns):\n"
        "        return [SetTimer(receive, now_ns)]\n\n"
        "    def on_receive_timer(self, receive, now_ns):\n"
        "        return [Feedback(receive), SetTimer(receive, 0)]\n",
        11, "on_receive_timer set 10,000 timers in a row less than 1000 ns ahead",
    ),
    "summary that is none": (
        "    def summary(self):\n        return {'view': self.view}\n\n"
        "    def on_sent(self, send, now_ns):\n        return [SetTimer(send, now_ns + 10**7)]\n\n"
        "    def on_send_timer(self, send, now_ns):\n"
        "        return [Retransmit(send, self.missing(send)), *self.on_sent(send, now_ns)]\n",
        8, "summary raised TypeError",
    ),
}  # fmt: skip
