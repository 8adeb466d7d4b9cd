# SPDX-License-Identifier: GPL-2.0-or-later
"""Beside scapy's own layer for RoCE: whoever is bound dissects, and nobody is bound unasked."""

import subprocess
import sys

import pytest
import scapy.contrib.roce as contrib
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import CookedLinux, Ether
from scapy.packet import Raw

from softroce_lab import dissect
from softroce_lab.dissect import BTH
from tests.native import frames

FRAME = frames.captured("rxe_rc")[0]


@pytest.fixture(autouse=True)
def guesses():
    """What is bound to UDP afterwards is what was before."""
    before = UDP.payload_guess
    yield
    UDP.payload_guess = before


def test_an_import_binds_nothing():
    assert not dissect.is_bound()
    assert contrib.BTH in Ether(FRAME)
    assert BTH not in Ether(FRAME)


def test_binding_and_unbinding():
    for _ in range(2):
        dissect.bind()
        assert dissect.is_bound()
        assert BTH in Ether(FRAME)
        assert contrib.BTH not in Ether(FRAME)
        assert sum(each is BTH for _, each in UDP.payload_guess) == 1
    dissect.unbind()
    assert contrib.BTH in Ether(FRAME)
    dissect.unbind()
    assert not dissect.is_bound()


def test_bound_for_a_while():
    with dissect.bound():
        assert BTH in Ether(FRAME)
    assert not dissect.is_bound()
    with pytest.raises(KeyError), dissect.bound():
        raise KeyError
    assert not dissect.is_bound()
    dissect.bind()
    with dissect.bound():
        pass
    assert dissect.is_bound()


def test_a_source_port_of_others_does_not_matter():
    """53 is the DNS's, and scapy's default."""
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.2")
    frame = bytes(packet / UDP(sport=53) / BTH(psn=5))
    assert dissect.parse(frame)[BTH].psn == 5


def test_other_link_types_are_dissected():
    ip = FRAME[14:]
    assert BTH in dissect.parse(ip, 101)  # raw IP
    cooked = bytes(CookedLinux(proto=0x0800)) + ip
    assert BTH in dissect.parse(cooked, 113)
    unknown = dissect.parse(FRAME, 65000)
    assert (type(unknown), bytes(unknown)) == (Raw, FRAME)
    assert 65000 not in conf.l2types.num2layer


def test_scapy_is_not_loaded_by_the_command_line():
    """It takes half a second: `lab up` and `lab --help` do without it."""
    code = (
        "import sys; from softroce_lab.cli import app\n"
        "for verb in app.VERBS: app._load(verb, app.VERBS[verb])\n"
        "sys.exit('scapy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
