# SPDX-License-Identifier: GPL-2.0-or-later
"""The frames that the wire stage is measured with."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from softroce_lab.bench.wire import with_ecn


@pytest.mark.parametrize("codepoint", range(4))
def test_another_ecn_field_has_a_right_checksum(codepoint):
    frame = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB9) / UDP() / b"payload")
    changed = Ether(with_ecn(frame, codepoint))
    assert changed[IP].tos == 0xB8 | codepoint
    given = changed[IP].chksum
    del changed[IP].chksum
    assert Ether(bytes(changed))[IP].chksum == given
    assert bytes(changed)[26:] == frame[26:]
