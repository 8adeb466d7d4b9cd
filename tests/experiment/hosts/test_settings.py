# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told survives the pipe to it."""

import dataclasses
import json

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts.settings import (
    RECEIVE_FRAMES,
    WINDOW_PACKETS,
    WorkloadSettings,
    packed,
    read_command,
    unpacked,
)
from softroce_lab.plan.path_mtu import path_mtu_bytes
from softroce_lab.topology.model import MTU_DEFAULT_BYTES
from softroce_lab.workloads.flows import PointToPoint


def test_the_window_leaves_room_in_the_receive_ring():
    """Two senders at full window, and as much again for what nobody has taken yet."""
    assert 4 * WINDOW_PACKETS <= RECEIVE_FRAMES


@pytest.mark.parametrize(
    ("netdev", "path"),
    [
        (308, 256),
        (576, 512),
        (1500, 1024),
        (2099, 1024),
        (2100, 2048),
        (4147, 2048),
        (4148, 4096),
        (9000, 4096),
    ],
)
def test_the_path_mtu_fits_into_the_links(netdev, path):
    assert path_mtu_bytes(netdev, 4) == path
    assert path_mtu_bytes(netdev + 20, 6) == path  # the IPv6 header is longer


@pytest.mark.parametrize(("netdev", "ip_version"), [(307, 4), (327, 6)])
def test_links_that_are_too_narrow_for_rdma(netdev, ip_version):
    with pytest.raises(UserError, match=f"MTU of {netdev} bytes") as refusal:
        path_mtu_bytes(netdev, ip_version)
    assert refusal.value.hint == f"at least {netdev + 1}"


def test_usual_links_carry_the_same_packets_over_either_ip_version():
    assert path_mtu_bytes(MTU_DEFAULT_BYTES, 4) == path_mtu_bytes(MTU_DEFAULT_BYTES, 6) == 2048


@pytest.mark.parametrize(
    ("line", "command", "arguments"),
    [
        ("finish\n", "finish", {}),
        ("  finish  \n", "finish", {}),
        ('finish {"journal": "/a b/c"}\n', "finish", {"journal": "/a b/c"}),
        ("\n", "", {}),
        ("", "", {}),
    ],
)
def test_commands(line, command, arguments):
    assert read_command(line) == (command, arguments)


def test_a_command_that_is_cut_is_an_error():
    with pytest.raises(ValueError, match="Expecting"):
        read_command('finish {"journal": ')


def test_a_workload_survives_the_pipe():
    workload = PointToPoint((3, 5), 1000, 300)
    settings = WorkloadSettings(5, packed(workload), 7, 2)
    reported = WorkloadSettings(**json.loads(json.dumps(dataclasses.asdict(settings))))
    assert unpacked(reported.workload) == workload
    assert (reported.host, reported.seed, reported.depth) == (5, 7, 2)
