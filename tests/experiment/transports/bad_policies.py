# SPDX-License-Identifier: GPL-2.0-or-later
"""Policies that users write wrongly, and what the run has to say of each."""

import re

HEAD = """import ctypes, itertools, os, sys, time
import numpy as np
from softroce_lab.transports import policy
from softroce_lab.transports.policy import *


class Mine(MessagePolicy):
"""


def names_line(reason, file, line):
    """Whether a reason begins with the file and this line, or one of (first, last); None: none."""
    place = re.match(re.escape(str(file)) + r"(?::(\d+))?: ", reason)
    if place is None or place[1] is None or line is None:
        return place is not None and place[1] is None and line is None
    first, last = line if isinstance(line, tuple) else (line, line)
    return first <= int(place[1]) <= last


def states(reason, why):
    """Whether a reason has this text, or one of these."""
    return any(each in reason for each in (why if isinstance(why, tuple) else (why,)))


def _on_sent(returned):
    return f"    def on_sent(self, send, now_ns):\n        return {returned}\n"


_SENT = "    def on_sent(self, send, now_ns):\n"
BAD = {  # name: (the body of the class, the line that is named, what is said)
    "raises": (_SENT + "        return self.view.nothing\n", 9, "on_sent raised AttributeError"),
    "ends the process": (
        _SENT + "        raise SystemExit(0)\n", 9, "on_sent raised SystemExit: 0",
    ),
    "raises what Ctrl-C does": (
        _SENT + "        raise KeyboardInterrupt\n", 9, "on_sent raised KeyboardInterrupt",
    ),
    "raises without a text": (
        _SENT + "        class Odd(Exception):\n            def __str__(self):\n"
        "                return 3\n        raise Odd\n",
        12, "on_sent raised Odd: Odd without a text",
    ),
    "raises at the receiver": (
        "    def on_first_packet(self, receive, now_ns):\n        return [receive.size]\n",
        9, "on_first_packet raised AttributeError",
    ),
    "raises at the start": (
        "    def __init__(self, view, timing, options=None):\n        view.paths = 3\n",
        9, "__init__ raised AttributeError",
    ),
    "takes too little": (
        "    def on_sent(self, send):\n        return []\n",
        8, "on_sent raised TypeError: Mine.on_sent() takes 2 positional arguments but 3 were given",
    ),
    "returns None": (_SENT + "        pass\n", 8, "on_sent returned no list of actions"),
    "returns an action alone": (
        _on_sent("SetTimer(send, now_ns)"), 8, "on_sent returned no list of actions",
    ),
    "returns no action": (_on_sent("['lost']"), 8, "on_sent returned 'lost', which is no action"),
    "no such packet": (
        _on_sent("[Retransmit(send, np.array([send.count]))]"), 8, "of a message of",
    ),
    "a handle for a message": (
        _on_sent("[SetTimer(send.handle, now_ns)]"), 8, "is no message that a hook was given",
    ),
    "no copy": (
        _on_sent("[Retransmit(send, [0], copies=0)]"), 8, "copies: 0 is no number from 1 to 16",
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
    "status of a receive": (
        "    def on_first_packet(self, receive, now_ns):\n"
        "        return [RequestStatus(receive)]\n",
        8, "is no message that is sent here",
    ),
    "time goes back": (_on_sent("[SetTimer(send, -1)]"), 8, "at_ns: -1 is no time in ns"),
    "a weight below 0": (
        _on_sent("[PathWeights(send.peer, [-1] + [9] * (self.view.paths - 1))]"), 8,
        "are no weights of",
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
    "keeps exceptions": (
        _SENT + "        while True:\n            try:\n                time.sleep(0.001)\n"
        "            except Exception:\n                pass\n",
        (9, 13), "on_sent did not return within",
    ),
    "ends the process at once": (
        _SENT + "        os._exit(0)\n", 8, ("process: exit code 0", "with status 0"),
    ),
    "ends the process at the start": (
        "    def __init__(self, *of):\n        os._exit(3)\n", 8,
        "__init__ ended the process: exit code 3",
    ),
    "crashes": (
        _SENT + "        ctypes.string_at(1)\n", 8, "killed by SIGSEGV",
    ),
    "keeps the interpreter's lock": (
        _SENT + "        sum(itertools.repeat(1))\n", 8, "on_sent did not return within",
    ),
    "recurses": (
        _SENT + "        return self.on_sent(send, now_ns)\n", 9,
        "on_sent raised RecursionError",
    ),
    "recurses below the hook": (
        _SENT + "        sys.setrecursionlimit(10**9)\n        return self.deeper()\n\n"
        "    def deeper(self):\n        return self.deeper()\n",
        (8, 13), ("on_sent raised MemoryError", "on_sent did not return within"),
    ),
    "no number of packets a chunk": (
        "    def __init__(self, *of):\n        super().__init__(*of)\n"
        "        self.chunk_packets = 0\n",
        8, "chunk_packets: 0 is no number of packets from 1 to",
    ),
    "time stands still": (
        "    def on_send_posted(self, send, now_ns):\n        return [SetTimer(send, now_ns)]\n\n"
        "    def on_send_timer(self, send, now_ns):\n        return [SetTimer(send, now_ns)]\n",
        11, "on_send_timer set 10,000 timers in a row less than 1000 ns ahead",
    ),
    "summary that is none": (
        "    def summary(self):\n        return {'view': self.view}\n\n"
        "    def on_sent(self, send, now_ns):\n        return [SetTimer(send, now_ns + 10**7)]\n\n"
        "    def on_send_timer(self, send, now_ns):\n"
        "        return [Retransmit(send, self.missing(send)), *self.on_sent(send, now_ns)]\n",
        8, "summary raised TypeError",
    ),
}  # fmt: skip
