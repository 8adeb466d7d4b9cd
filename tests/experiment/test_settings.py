# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told survives the pipe to it."""

import dataclasses

import pytest

from softroce_lab.experiment.settings import (
    PATH_MTU_BYTES,
    RECEIVE_FRAMES,
    WINDOW_PACKETS,
    HostSettings,
    PeerSettings,
    TransferSettings,
    read_command,
)

HOST = HostSettings(
    node="h1",
    interface="eth1",
    ifindex=1001,
    address=0x0A000001,
    mac=0x020000000001,
    xsks_map="/sys/fs/bpf/a name with spaces/xsks",
    xdp_mode="generic",
    transport="csa_ud",
    epoch_ns=1 << 60,
    qkey=0xFFFFFFFF,
)


def test_host_settings_there_and_back():
    text = HOST.to_json()
    assert "\n" not in text
    assert HostSettings.from_json(text) == HOST
    changed = dataclasses.replace(HOST, cpu=1, paths=3, congestion_control="other")
    assert HostSettings.from_json(changed.to_json()) == changed != HOST


def test_a_setting_that_is_unknown_is_an_error():
    with pytest.raises(TypeError, match="colour"):
        HostSettings.from_json(HOST.to_json().replace('"node"', '"colour": 1, "node"'))


def test_the_window_leaves_room_in_the_receive_ring():
    """Two senders at full window, and as much again for what nobody has taken yet."""
    assert 4 * WINDOW_PACKETS <= RECEIVE_FRAMES
    assert PATH_MTU_BYTES in (256, 512, 1024, 2048, 4096)


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


def test_settings_of_peers_and_transfers_are_arguments():
    peer = PeerSettings(address=1, mac=2, data_qp=3, recovery_qp=4, qkey=5)
    assert PeerSettings(**dataclasses.asdict(peer)) == peer
    transfer = TransferSettings("send", 10, 4, 2, None)
    assert TransferSettings(**dataclasses.asdict(transfer)) == transfer
    assert transfer.hash
