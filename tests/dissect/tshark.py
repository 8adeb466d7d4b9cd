# SPDX-License-Identifier: GPL-2.0-or-later
"""tshark as a reader of frames: one run for a file, fields as texts.

It runs in a home of its own, where our dissector is installed, and nothing else: neither its user's
settings nor plugins matter. Heuristics of others are off: what they take for RPC in random payloads
is none of our business.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from softroce_lab.dissect import wireshark

OTHERS = (
    "rpcrdma_infiniband", "smb_direct_infiniband", "smcr_infiniband", "iser_infiniband", "lnet_ib",
    "sdp_infiniband", "fc_infiniband", "mellanox_eoib", "nvme_rdma", "eth_over_ib",
)  # fmt: skip
PLUGINS = ".local/lib/wireshark/plugins"
_TIMEOUT_S = 120
_ENDS, _REPEATS = "\t", "\x1f"


def write_pcap(path: Path, frames: Iterable[bytes], snap: int = 65535) -> Path:
    """The frames as a pcap file of Ethernet, a microsecond apart."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            head = struct.pack("<IIII", 0, number, len(frame[:snap]), len(frame))
            file.write(head + frame[:snap])
    return path


def run(home: Path, *arguments: str, guesses: bool = False) -> str:
    """What tshark prints; a test that needs it fails where it is missing.

    `guesses`: with heuristics of others on, as users have them.
    """
    program = shutil.which("tshark")
    if program is None:
        pytest.fail("tshark is missing: apt-get install tshark, or start the tests by ./lab test")
    wireshark.install(wireshark.named(home / PLUGINS))
    settings = home / ".config/wireshark"
    settings.mkdir(parents=True, exist_ok=True)
    off = "".join(f"{name},0\n" for name in OTHERS)
    (settings / "heuristic_protos").write_text("" if guesses else off)
    environment = {"PATH": os.defpath, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [program, *arguments],
        env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Lua: Error" not in done.stderr, done.stderr
    return done.stdout


def fields(
    home: Path, capture: Path, names: Sequence[str], *arguments: str
) -> list[dict[str, list[str]]]:
    """The fields of every frame that has any of these names: name -> all its values, as shown."""
    shown = ["-T", "fields", "-E", "occurrence=a", "-E", f"aggregator={_REPEATS}"]
    wanted = [part for name in names for part in ("-e", name)]
    reported = run(home, "-r", str(capture), *shown, *wanted, *arguments)
    return [
        {
            name: text.split(_REPEATS)
            for name, text in zip(names, line.split(_ENDS), strict=True)
            if text
        }
        for line in reported.splitlines()
    ]
