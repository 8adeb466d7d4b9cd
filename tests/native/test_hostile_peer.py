# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody tells a live RC connection anything at all: native/fuzz/hostile_peer.cpp."""

import subprocess

import pytest

from tests import native_build

RUN_S = 1200
FRAMES, FULL_FRAMES = 200_000, 10_000_000


@pytest.mark.full("hostile-peer")
def test_no_frame_harms_a_live_connection(full):
    """10 million mutated frames at a live RC connection, under sanitizers."""
    native_build.fuzz()
    frames, seed = (FULL_FRAMES if full else FRAMES), 20261121
    run = [native_build.BUILD / "hostile_peer", str(frames), str(seed)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, run))}\n{done.stderr[-4000:]}"
    connections = int(done.stdout.split(" connections")[0].split()[-1])
    assert connections > frames / 1000, done.stdout  # it was alive, and broken again and again
    print(done.stdout)
