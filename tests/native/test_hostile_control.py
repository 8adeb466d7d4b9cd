# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody sends any control messages to live endpoints: native/fuzz/hostile_control.cpp."""

import subprocess

import pytest

from tests import native_build

RUN_S = 3600
MESSAGES, FULL_MESSAGES = 20_000, 10_000_000
TRANSPORTS = [
    "irn", "srnic", "csa_ud", "rack_tlp", "falcon", "mrc", "uet_rud", "uet_rod", "dcp", "ndp",
    "uccl",
]  # fmt: skip


@pytest.mark.full("hostile-control")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_control_message_harms_a_live_endpoint(transport, full):
    """10 million hostile control messages and trimmed headers a transport, under sanitizers."""
    native_build.fuzz("hostile_control")
    messages = FULL_MESSAGES if full else MESSAGES
    run = [native_build.BUILD / "hostile_control", transport, str(messages), "20261130"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, run))}\n{done.stderr[-4000:]}"
    taken = int(done.stdout.split(" control messages taken")[0].split()[-1])
    assert taken > messages / 4, done.stdout  # well enough formed to be looked at
    print(done.stdout)
