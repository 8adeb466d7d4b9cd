# SPDX-License-Identifier: GPL-2.0-or-later
"""Headers may say anything: a few bytes of a capture must not cost gigabytes, or minutes."""

import time
import tracemalloc

import numpy as np
import pytest

from softroce_lab.check.opcodes import READ_REQUEST
from softroce_lab.check.rc.results import _missing_ends
from tests.check.plant import Tape
from tests.check.striped_tape import record

MOST_BYTES = 64 << 20
MOST_CPU_S = 20


@pytest.fixture
def frugal():
    """Neither much memory nor much time goes by."""
    tracemalloc.start()
    began_s = time.process_time()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_BYTES
    assert time.process_time() - began_s < MOST_CPU_S


def test_a_read_of_four_gigabytes(frugal, tmp_path):
    tape = Tape.of("rxe_verbs_rc")
    reads = tape.find(opcode=READ_REQUEST)
    assert reads
    for number in reads:
        tape.alter(number, dmalen=0xFFFFFFFF)
    tape.check(tmp_path)


def test_a_message_of_sixteen_million_packets(frugal, tmp_path):
    tape = record("csa_ud", messages=2, packets=5)
    for number in tape.data():
        tape.alter(number, count=0xFFFFFF)
    tape.check(tmp_path)


@pytest.mark.parametrize(
    ("came", "ends"),
    [
        ([], (5, 9)),
        ([5, 6], (7, 9)),
        ([8, 9], (5, 7)),
        ([5, 9], (6, 8)),
        ([6, 8], (5, 9)),
        ([5, 6, 8, 9], (7, 7)),
    ],
)
def test_the_first_and_the_last_that_are_missing(came, ends):
    assert _missing_ends(5, 10, np.array(came, np.int64)) == ends
