# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told survives the pipe to it."""

import dataclasses

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment.settings import (
    RECEIVE_FRAMES,
    WINDOW_PACKETS,
    PeerSettings,
    TransferSettings,
    path_mtu_bytes,
    read_command,
)


def test_the_window_leaves_room_in_the_receive_ring():
    """Two senders at full window, and as much again for what nobody has taken yet."""
    assert 4 * WINDOW_PACKETS <= RECEIVE_FRAMES


@pytest.mark.parametrize(
    ("netdev", "path"),
    [(308, 256), (576, 512), (1500, 1024), (2099, 1024), (2100, 2048), (9000, 2048)],
)
def test_the_path_mtu_fits_into_the_links(netdev, path):
    assert path_mtu_bytes(netdev) == path


def test_links_that_are_too_narrow_for_rdma():
    with pytest.raises(UserError, match="MTU of 307 bytes"):
        path_mtu_bytes(307)


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
