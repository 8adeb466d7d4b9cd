# SPDX-License-Identifier: GPL-2.0-or-later
"""A file's two sides on the in-memory pair: any size, any depth, hashed and written."""

import hashlib
import os

import numpy as np
import pytest

from softroce_lab.errors import RunError
from softroce_lab.experiment.hosts.buffers import FileBuffer, HostBuffer
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.file import FileTransfer
from softroce_lab.workloads.message import FLOAT32
from tests.experiment.hosts.cable import Drivers

MESSAGE = 10_000


class Sides(Drivers):
    """A sender on side 0 and a receiver on side 1."""

    def __init__(self, folder, data, *, depth=2, hashed=True, save=True, loss=0.0, via="csa_ud"):
        self.source, self.target = folder / "source", folder / "target"
        self.source.write_bytes(data)
        saved = str(self.target) if save else None
        transfer = FileTransfer((0, 1), str(self.source), len(data), MESSAGE, depth, saved, hashed)
        super().__init__(via, transfer, (0, 1), depth=depth, loss=loss)

    def run(self):
        """Until both are done: of each its bytes, what is wrong, its digest."""
        super().run()
        for memory in self.memories:
            memory.close()
        return [(each.done_bytes, each.wrong(), each.memory.sha256()) for each in self.both]


@pytest.mark.parametrize("via", ["csa_ud", "rc"])
@pytest.mark.parametrize(
    ("size", "depth"),
    [(0, 1), (1, 2), (MESSAGE - 1, 2), (MESSAGE, 1), (MESSAGE + 1, 2), (12 * MESSAGE + 5, 7)],
)
def test_every_size_arrives(tmp_path, size, depth, via):
    data = os.urandom(size)
    sides = Sides(tmp_path, data, depth=depth, via=via)
    digest = hashlib.sha256(data).hexdigest()
    assert sides.run() == 2 * [(size, [], digest)]
    assert sides.target.read_bytes() == data


def test_what_is_lost_on_the_way_is_repeated_and_the_order_kept(tmp_path):
    data = os.urandom(40 * MESSAGE)
    sides = Sides(tmp_path, data, depth=5, loss=0.1)
    assert sides.run() == 2 * [(len(data), [], hashlib.sha256(data).hexdigest())]
    assert sides.target.read_bytes() == data


def test_received_bytes_need_not_be_kept_nor_hashed(tmp_path):
    sides = Sides(tmp_path, bytes(3 * MESSAGE), hashed=False, save=False)
    assert sides.run() == 2 * [(3 * MESSAGE, None, None)]
    assert not sides.target.exists()


def test_a_file_that_becomes_shorter_ends_the_run(tmp_path):
    sides = Sides(tmp_path, bytes(10 * MESSAGE))
    sides.source.write_bytes(bytes(3 * MESSAGE + 1))
    with pytest.raises(RunError, match="shorter"):
        sides.run()


def test_a_file_that_cannot_be_written_ends_the_run(tmp_path):
    transfer = FileTransfer((0, 1), "", 4, MESSAGE, 1, "/dev/full")
    buffer = FileBuffer(transfer, 1)
    [message] = transfer.messages()
    buffer.place(message)
    with pytest.raises(RunError, match="cannot write the received file: No space left"):
        buffer.combine(message)


def test_messages_that_arrive_early_are_hashed_in_their_order(tmp_path):
    """And their buffers are free at once: three buffers' worth arrives in two."""
    data = os.urandom(3 * MESSAGE)
    transfer = FileTransfer((0, 1), "", len(data), MESSAGE, 1)
    buffer = FileBuffer(transfer, 1)
    messages = list(transfer.messages())
    places = {}
    for number in (0, 2, 1):
        message = messages[number]
        places[number] = at = buffer.place(message)
        if number == 0:
            continue  # the first arrives last
        begin = message.destination_offset
        buffer.memory[at : at + MESSAGE] = bytearray(data[begin : begin + MESSAGE])
        buffer.combine(message)
        assert buffer.sha256() is None
    buffer.memory[places[0] : places[0] + MESSAGE] = bytearray(data[:MESSAGE])
    buffer.combine(messages[0])
    assert buffer.sha256() == hashlib.sha256(data).hexdigest()


def test_an_addition_that_comes_early_waits_for_its_turn():
    """And its room is free at once: another message takes it before the addition."""
    workload = Collective((0, 1, 2, 3), 4, 4, FLOAT32, "all-reduce", "binomial-tree")
    schedule = workload.schedule()
    buffer = HostBuffer(workload, schedule, 0, 1, 1)
    first, second = schedule.receives(0)
    before = buffer.buffer.copy()
    data = {first.key: np.float32([1e-8]), second.key: np.float32([1e8])}

    def arrive(message, take):
        at = buffer.place(message)
        buffer.memory[at : at + 4] = data[message.key].view(np.uint8)
        take(message)
        buffer.memory[at : at + 4] = 255  # what comes next

    arrive(second, buffer.keep)
    assert (buffer.buffer == before).all()
    arrive(first, buffer.combine)
    buffer.combine(second)
    assert buffer.buffer == before + data[first.key] + data[second.key]
