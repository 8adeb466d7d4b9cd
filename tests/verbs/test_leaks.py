# SPDX-License-Identifier: GPL-2.0-or-later
"""A process that ends frees its RNICs and their queues, whatever it left open."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEVICE = """
import sys, threading
from softroce_lab import _native
from softroce_lab.verbs import CQ, MR, PD, CompChannel, Context

config = _native.MessageConfig()
config.address = 0x0A000001
endpoint = _native.FrameEndpoint(config, 1)
context = Context(endpoint)
cq = CQ(context, 10, channel=CompChannel(context))
"""

LEFT_OPEN = {
    "queues": "",
    "a cycle": "cq.cq_context = [cq, context]",
    "an exception": "def fail():\n    mine = cq\n    raise OSError\nfail()",
    "a thread that ends": "threading.Thread(target=lambda: cq.poll()).start()",
}


def ended(script: str) -> str:
    """What a process that ran it wrote to its standard error."""
    argv = [sys.executable, "-c", DEVICE + script]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return completed.stderr


@pytest.mark.parametrize("left", LEFT_OPEN)
def test_nothing_is_leaked_by_what_is_left_open(left):
    assert "leaked" not in ended(LEFT_OPEN[left])


ENDLESS = """
def wait(held):
    threading.Event().wait()
threading.Thread(target=wait, args=(cq,), daemon=True).start()
"""


def test_a_leak_would_be_noticed():
    assert "nanobind: leaked" in ended(ENDLESS)
