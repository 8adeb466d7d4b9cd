# SPDX-License-Identifier: GPL-2.0-or-later
"""Both sides of a transfer on the in-memory pair: any size, any depth, hashed and written."""

import hashlib
import os
import types

import pytest

from softroce_lab.errors import RdmaError, RunError, ibv_wc_status
from softroce_lab.experiment.settings import TransferSettings
from softroce_lab.experiment.streams import Receiver, Sender
from softroce_lab.workloads.transfer import Transfer
from tests.recovery.pair_rig import SECOND_NS, PairRig

MESSAGE = 10_000


class Streams:
    """A sender on side 0 and a receiver on side 1."""

    def __init__(self, folder, data, *, depth=2, hash_=True, save=True, loss=0.0):
        self.source, self.target = folder / "source", folder / "target"
        self.source.write_bytes(data)
        self.rig = PairRig("csa_ud", arena_bytes=64)
        for cable in self.rig.cables:
            cable.loss, cable.delay_ns = int(loss * 2**64), 100_000
        work = Transfer(len(data), MESSAGE)
        hosts = [side.endpoint for side in self.rig.sides]
        paths = (str(self.source), str(self.target) if save else None)
        settings = [
            TransferSettings(role, len(data), MESSAGE, depth, path, hash_)
            for role, path in zip(("send", "receive"), paths, strict=True)
        ]
        self.sender = Sender(hosts[0], 0, work, settings[0])
        self.receiver = Receiver(hosts[1], 0, work, settings[1])

    @property
    def both(self):
        return (self.sender, self.receiver)

    def run(self):
        """Until both are done, or 10 s have passed."""
        until_ns = self.rig.now_ns + 10 * SECOND_NS
        with self.sender, self.receiver:
            self.receiver.begin()
            self.sender.begin()
            while not all(stream.finished for stream in self.both):
                assert self.rig.step(until_ns), "unfinished"
                for side, stream in zip(self.rig.sides, self.both, strict=True):
                    done, side.completions = side.completions, []
                    for completion in done:
                        stream.complete(completion)


@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("size", [0, 1, MESSAGE - 1, MESSAGE, MESSAGE + 1, 12 * MESSAGE + 5])
def test_every_size_arrives(tmp_path, size, depth):
    data = os.urandom(size)
    streams = Streams(tmp_path, data, depth=depth)
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
    assert streams.rig.counters(0)["tx_resent"] > 0


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


def test_a_sender_needs_a_file(tmp_path):
    streams = Streams(tmp_path, b"data")
    settings = TransferSettings("send", 4, MESSAGE, 2, None)
    with pytest.raises(RunError, match="needs a file"):
        Sender(streams.rig.sides[0].endpoint, 0, Transfer(4, MESSAGE), settings)


def completion(number, *, status=0, length=MESSAGE):
    return types.SimpleNamespace(wr_id=number, status=int(status), byte_len=length)


def test_a_work_request_that_failed_ends_the_transfer(tmp_path):
    streams = Streams(tmp_path, bytes(3 * MESSAGE))
    for stream in streams.both:
        with pytest.raises(RdmaError) as caught:
            stream.complete(completion(1, status=ibv_wc_status.IBV_WC_RETRY_EXC_ERR))
        assert caught.value.status == ibv_wc_status.IBV_WC_RETRY_EXC_ERR
        assert stream.done_bytes == 0


def test_a_message_of_another_length_ends_the_transfer(tmp_path):
    streams = Streams(tmp_path, bytes(3 * MESSAGE))
    with pytest.raises(RunError, match="message 1 is 9999 bytes long"):
        streams.receiver.complete(completion(1, length=MESSAGE - 1))
