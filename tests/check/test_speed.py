# SPDX-License-Identifier: GPL-2.0-or-later
"""Large captures: a million packets are checked in bounded time and memory."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softroce_lab import _native
from tests.check.line import Line, talk
from tests.check.plant import Frame, Tape

MOST_S, MOST_KIB = 60, 1 << 20
QPN = "infiniband.bth.destqp"


def conversations(line_packets, packets):
    """A lossy talk again and again, each time between other queue pairs."""
    tape = Tape()
    fields = [
        (frame.time_ns, dict(_native.decode_frame(frame.data))) for frame in line_packets.frames
    ]
    span_ns = fields[-1][0] - fields[0][0] + 1_000_000
    while len(tape) < packets:
        again = len(tape) // len(fields)
        for time_ns, sent in fields:
            changed = sent | {QPN: sent[QPN] + 2 * again & 0xFFFFFF}
            frame = bytes(_native.encode_frame(changed))
            tape.frames.append(Frame(time_ns + again * span_ns, frame))
    return tape


def write(path, full):
    lossy = talk(Line(loss=0.02, seed=5), count=500 if full else 50)["h2"]
    conversations(lossy, 1_000_000 if full else 5_000).write(path)


@pytest.mark.full("check-million")
def test_a_million_packets_in_a_minute_and_a_gibibyte(full, tmp_path):
    """1,000,000 packets are checked in 60 s and 1 GiB; in short, 5,000 without a violation."""
    path = tmp_path / "large.pcapng"
    # Not here: a child's memory is at first that of the process that starts it.
    generate = [sys.executable, "-m", "tests.check.test_speed", str(path), "1" if full else ""]
    subprocess.run(generate, check=True, cwd=Path(__file__).parents[2])
    begun = time.monotonic()
    command = [sys.executable, "-m", "softroce_lab.cli", "verify", str(path)]
    with (tmp_path / "output").open("w") as output:
        checker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(checker.pid, 0)  # of this child only
        checker.returncode = os.waitstatus_to_exitcode(status)
    text = (tmp_path / "output").read_text()
    assert checker.returncode == 0, text
    assert "rc.go-back-n" in text
    if full:
        used_kib = used.ru_maxrss
        print(f"{time.monotonic() - begun:.1f} s, {used_kib >> 10} MiB")
        assert time.monotonic() - begun < MOST_S
        assert used_kib < MOST_KIB


if __name__ == "__main__":
    write(Path(sys.argv[1]), bool(sys.argv[2]))
