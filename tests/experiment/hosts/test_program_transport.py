# SPDX-License-Identifier: GPL-2.0-or-later
"""The transport of unmodified programs: what `--transport` accepts, and the text made of it."""

import dataclasses

import pytest

from softroce_lab import _native, topology
from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts import program_transport
from softroce_lab.experiment.hosts.opening import host_config
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.programs.device import device
from softroce_lab.transports import registry

PLAN = topology.load("two-hosts")
PLAN_PATH_MTU = 2048
MTUS = range(1280, 3499)
STRIPED = registry.transports(registry.Kind.SESSION)


def config(argument, plan=PLAN):
    text = program_transport.text(program_transport.of_argument(argument), plan)
    return _native.MessageConfig.from_text(text, one_line=True)


@pytest.mark.parametrize("name", STRIPED)
def test_every_transport_of_the_real_clock_becomes_a_text(name):
    found = config(name)
    entry = registry.find(name)
    assert (found.transport, found.framing) == (name, "ud")
    assert found.options == entry.engine()["options"]
    assert (found.carries_operations, found.carries_payload) == (True, True)


def test_the_text_has_what_processes_of_hosts_have():
    """But for the framing, and what each device sets itself."""
    found = config("sdr_ec")
    transport = program_transport.of_argument("sdr_ec")
    wanted = host_config(transport, on_machine(transport, PLAN), 0, pacing_slack_ns=100_000)
    wanted.carries_operations = True
    assert found.text() == wanted.text()


def test_frames_of_both_ip_versions_fit():
    """At some MTUs a longer packet fits into frames of IPv4 than into those of IPv6."""
    assert device.path_mtu(PLAN.mtu) == PLAN_PATH_MTU == config("irn").path_mtu
    differing = [mtu for mtu in MTUS if path_mtu_bytes(mtu, 4) != path_mtu_bytes(mtu, 6)]
    assert differing != []
    for mtu in differing:
        plan = dataclasses.replace(PLAN, mtu=mtu)
        chosen = program_transport.of_argument("sdr_ec,chunk=64 KiB")
        assert on_machine(chosen, plan, ip_version=6).path_mtu == device.path_mtu(mtu)
        found = config("sdr_ec,chunk=64 KiB", plan)
        assert found.path_mtu * found.code_chunk_packets == 64 << 10


def test_knobs_and_options_are_set():
    found = config("csa_ud,parity=2,path_health=false,window=64,paths=4,retry_count=9")
    assert (found.options["parity"], found.options["path_health"]) == ("2", False)
    assert (found.window_packets, found.paths, found.timing.most_attempts) == (64, 4, 10)
    found = config("irn,timeout=5 ms,congestion_control=dcqcn,framing=ud,schedule=fair")
    assert (found.timeout_ns, found.congestion_control) == (5_000_000, "dcqcn")
    assert found.schedule == "fair"
    assert config("falcon,probe_rtts=3").options["probe_rtts"] == 3.0


def test_other_options_have_another_digest():
    assert config("csa_ud").digest == config("csa_ud").digest
    assert len({config(each).digest for each in ("csa_ud", "csa_ud,paths=4", "irn")}) == 3


def test_rc_needs_no_text():
    assert program_transport.of_argument("rc") is None


REFUSED = [
    ("csa_du", "unknown transport 'csa_du'", "did you mean 'csa_ud'?"),
    ("", "unknown transport ''", "known: csa_ud, "),
    ("mine=csa_ud", "unknown transport 'mine=csa_ud'", "csa_ud"),
    ("oracle", "oracle exists on the virtual clock only", "another transport"),
    ("lossless", "lossless exists on the virtual clock only", "another transport"),
    ("shift", "shift needs two devices of a host", "--shift"),
    ("./mine.py:Mine", "./mine.py:Mine: a program cannot use a policy of your own", "built-in"),
    ("mine.py:Mine,a=1", "mine.py:Mine: a program cannot use a policy", "built-in"),
    ("rc,window=4", "rc takes no options here", "rc without window"),
    ("csa_ud,framing=uc_immediate", "programs need the framing ud, not uc_immediate", "leave"),
    ("irn,framing=uc_immediate", "irn does not work over the framing 'uc_immediate'", "has ud"),
    ("csa_ud,framing=x", "unknown framing 'x'", "ud"),
    ("csa_ud,parity", "'parity' sets nothing", "such as csa_ud,window=64"),
    ("csa_ud,parity=", "'parity=' sets nothing", "such as csa_ud,window=64"),
    ("csa_ud,", "'' sets nothing", "such as csa_ud,window=64"),
    ("csa_ud,parity=1,parity=2", "'parity' is set twice", "leave one out"),
    ("csa_ud,parity=9", "option 'parity': unknown value '9'", "one of: auto, 0"),
    ("csa_ud,colour=1", "unknown option 'colour'", "known: path_numbers"),
    ("csa_ud,parity=[1]", "parity: '[1]' is no single value", "a number or a word"),
    ("csa_ud,window=0", "window: 0 is out of bounds", "from 1 to"),
    ("irn,timeout=5", "timeout: 5 has no unit", "10 ms"),
    ("irn,congestion_control=x", "unknown congestion control 'x'", "bdp"),
]


@pytest.mark.parametrize(("argument", "what", "hint"), REFUSED)
def test_what_programs_cannot_have_is_refused(argument, what, hint):
    with pytest.raises(UserError) as caught:
        program_transport.of_argument(argument)
    assert what in caught.value.what
    assert hint in str(caught.value.hint)


def test_a_chunk_that_does_not_fit_the_path_mtu_is_refused():
    chosen = program_transport.of_argument("sdr_ec,chunk=3 KiB")
    with pytest.raises(UserError, match="no multiple of the path MTU"):
        program_transport.text(chosen, PLAN)
