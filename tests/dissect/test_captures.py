# SPDX-License-Identifier: GPL-2.0-or-later
"""Every packet that Linux sent: our layers, our codec and tshark tell the same of it."""

import pytest

from tests.dissect import readers
from tests.native import frames

CAPTURES = sorted(path.stem for path in frames.CAPTURES.glob("*.pcap"))


@pytest.mark.parametrize("name", CAPTURES)
def test_all_readers_tell_the_same_of_linux(name, tmp_path):
    captured = frames.captured(name)
    packets = readers.check_all(captured, tmp_path)
    assert len(packets) == len(captured) > 50
