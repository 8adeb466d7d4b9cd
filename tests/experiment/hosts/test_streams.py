# SPDX-License-Identifier: GPL-2.0-or-later
"""Both sides of a transfer on the in-memory pair: any size, any depth, hashed and written."""

import hashlib
import os

import pytest

from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.experiment.hosts.messenger import Done
from softroce_lab.experiment.hosts.settings import TransferSettings
from softroce_lab.experiment.hosts.streams import Receiver, Sender
from tests.experiment.hosts.cable import Cable
from tests.recovery.pair_rig import SECOND_NS, threshold

MESSAGE = 10_000


class Streams:
    """A sender on side 0 and a receiver on side 1."""

    def __init__(self, folder, data, *, depth=2, hash_=True, save=True, loss=0.0, via="csa_ud"):
        self.source, self.target = folder / "source", folder / "target"
        self.source.write_bytes(data)
        self.cable = Cable(via, [task.memory for task in self._tasks(data, depth, hash_, save)])
        for which in (0, 1):
            self.cable.pair.cable(which).loss = threshold(loss)

    def _tasks(self, data, depth, hash_, save):
        sides = (("send", 1, self.source), ("receive", 0, self.target if save else None))
        settings = [
            TransferSettings(role, peer, len(data), MESSAGE, depth, path and str(path), hash_)
            for role, peer, path in sides
        ]
        self.both = self.sender, self.receiver = Sender(settings[0]), Receiver(settings[1])
        return self.both

    def run(self):
        """Until both are done, or 10 s have passed."""
        with self.sender, self.receiver:
            for task, end in zip(self.both, self.cable.messengers, strict=True):
                task.prepare(end)
            for task in self.both:
                task.begin(0)
            self.cable.drive(self.both, 10 * SECOND_NS)


@pytest.mark.parametrize("via", ["csa_ud", "rc"])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("size", [0, 1, MESSAGE - 1, MESSAGE, MESSAGE + 1, 12 * MESSAGE + 5])
def test_every_size_arrives(tmp_path, size, depth, via):
    data = os.urandom(size)
    streams = Streams(tmp_path, data, depth=depth, via=via)
    streams.run()
    assert streams.target.read_bytes() == data
    for stream in streams.both:
        assert stream.done_bytes == size
        assert stream.digest() == hashlib.sha256(data).hexdigest()


def test_what_is_lost_on_the_way_is_repeated_and_the_order_kept(tmp_path):
    data = os.urandom(40 * MESSAGE)
    streams = Streams(tmp_path, data, depth=5, loss=0.1)
    streams.run()
    assert streams.target.read_bytes() == data
    assert streams.receiver.digest() == streams.sender.digest()
    assert streams.cable.pair.side(0).counters()["tx_resent"] > 0


def test_received_bytes_need_not_be_kept_nor_hashed(tmp_path):
    streams = Streams(tmp_path, bytes(3 * MESSAGE), hash_=False, save=False)
    streams.run()
    assert not streams.target.exists()
    assert [stream.digest() for stream in streams.both] == [None, None]
    assert streams.receiver.done_bytes == 3 * MESSAGE


def test_memory_is_a_ring_of_messages(tmp_path):
    """Whatever the file's size, a side holds no more than its slots."""
    streams = Streams(tmp_path, bytes(100 * MESSAGE), depth=3)
    assert streams.sender._buffer.nbytes == 3 * MESSAGE
    assert streams.receiver._buffer.nbytes == 6 * MESSAGE


def test_a_file_that_becomes_shorter_ends_the_transfer(tmp_path):
    streams = Streams(tmp_path, bytes(10 * MESSAGE))
    streams.source.write_bytes(bytes(3 * MESSAGE + 1))
    with pytest.raises(RunError, match="shorter"):
        streams.run()


def test_a_sender_needs_a_file():
    with pytest.raises(RunError, match="needs a file"):
        Sender(TransferSettings("send", 1, 4, MESSAGE, 2, None))


def done(number, *, status=0, length=MESSAGE):
    return Done("send", 0, (0, 0, number), int(status), length, 1, 0, 0, 0, 0, 0)


def test_a_message_that_failed_ends_the_transfer(tmp_path):
    streams = Streams(tmp_path, bytes(3 * MESSAGE))
    for stream in streams.both:
        with pytest.raises(RdmaError) as caught:
            stream.complete(done(1, status=ibv_wc_status.IBV_WC_RETRY_EXC_ERR))
        assert caught.value.status == ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        assert stream.done_bytes == 0


def test_a_message_of_another_length_ends_the_transfer(tmp_path):
    streams = Streams(tmp_path, bytes(3 * MESSAGE))
    with pytest.raises(RunError, match="message 1 is 9999 bytes long"):
        streams.receiver.complete(done(1, length=MESSAGE - 1))
