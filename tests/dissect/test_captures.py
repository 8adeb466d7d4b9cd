# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets that Linux sent, of every service: our layers, our codec and tshark tell the same."""

import pytest

from tests.dissect import readers
from tests.native import frames

CAPTURES = ("rxe_verbs_loss_new", "rxe_verbs_nak_new", "rxe_verbs_uc_ud", "rxe_ip6", "rxe_ud")


@pytest.mark.parametrize("name", CAPTURES)
def test_all_readers_tell_the_same_of_linux(name, tmp_path):
    captured = frames.captured(name)
    packets = readers.check_all(captured, tmp_path)
    assert len(packets) == len(captured) > 20
