# SPDX-License-Identifier: GPL-2.0-or-later
"""A file's two sides on the in-memory pair: any size, any depth, hashed and written."""

import hashlib
import os

import numpy as np
import pytest

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts.buffers import FileBuffer, HostBuffer, unequal
from softroce_lab.experiment.hosts.messenger import Done
from softroce_lab.experiment.hosts.settings import WorkloadSettings, packed
from softroce_lab.experiment.hosts.worker import Worker
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.file import FileTransfer
from softroce_lab.workloads.message import FLOAT32
from softroce_lab.workloads.progress import Act
from tests.experiment.hosts.cable import Cable
from tests.recovery.pair_rig import SECOND_NS, threshold

MESSAGE = 10_000


class Sides:
    """A sender on side 0 and a receiver on side 1."""

    def __init__(self, folder, data, *, depth=2, hashed=True, save=True, loss=0.0, via="csa_ud"):
        self.source, self.target = folder / "source", folder / "target"
        self.source.write_bytes(data)
        saved = str(self.target) if save else None
        transfer = FileTransfer((0, 1), str(self.source), len(data), MESSAGE, depth, saved, hashed)
        text = packed(transfer)
        self.both = [Worker(WorkloadSettings(host, text, 1, depth)) for host in (0, 1)]
        self.cable = Cable(via, [worker.memory for worker in self.both])
        for which in (0, 1):
            self.cable.pair.cable(which).loss = threshold(loss)

    def run(self):
        """Until both are done, or 10 s have passed; their results."""
        for worker, end in zip(self.both, self.cable.messengers, strict=True):
            worker.prepare(end)
        for worker in self.both:
            worker.begin(0)
        self.cable.drive(self.both, 10 * SECOND_NS)
        for worker in self.both:
            worker.close()
        return [worker.result() for worker in self.both]


@pytest.mark.parametrize("via", ["csa_ud", "rc"])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("size", [0, 1, MESSAGE - 1, MESSAGE, MESSAGE + 1, 12 * MESSAGE + 5])
def test_every_size_arrives(tmp_path, size, depth, via):
    data = os.urandom(size)
    sides = Sides(tmp_path, data, depth=depth, via=via)
    digest = hashlib.sha256(data).hexdigest()
    for result in sides.run():
        assert result == {"bytes": size, "left": 0, "wrong": [], "sha256": digest}
    assert sides.target.read_bytes() == data


def test_what_is_lost_on_the_way_is_repeated_and_the_order_kept(tmp_path):
    data = os.urandom(40 * MESSAGE)
    sides = Sides(tmp_path, data, depth=5, loss=0.1)
    digests = {result["sha256"] for result in sides.run()}
    assert digests == {hashlib.sha256(data).hexdigest()}
    assert sides.target.read_bytes() == data


def test_received_bytes_need_not_be_kept_nor_hashed(tmp_path):
    sides = Sides(tmp_path, bytes(3 * MESSAGE), hashed=False, save=False)
    for result in sides.run():
        assert (result["bytes"], result["wrong"], result["sha256"]) == (3 * MESSAGE, None, None)
    assert not sides.target.exists()


def test_memory_does_not_grow_with_the_file(tmp_path):
    sides = Sides(tmp_path, bytes(100 * MESSAGE), depth=3)
    assert [worker.memory.nbytes for worker in sides.both] == [3 * MESSAGE, 6 * MESSAGE]


def test_a_file_that_becomes_shorter_ends_the_run(tmp_path):
    sides = Sides(tmp_path, bytes(10 * MESSAGE))
    sides.source.write_bytes(bytes(3 * MESSAGE + 1))
    with pytest.raises(RunError, match="shorter"):
        sides.run()


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot open .*/gone: No such file"):
        FileBuffer(FileTransfer((0, 1), str(tmp_path / "gone"), 4, MESSAGE, 1), 0)


def test_a_file_that_cannot_be_written_ends_the_run(tmp_path):
    transfer = FileTransfer((0, 1), "", 4, MESSAGE, 1, "/dev/full")
    buffer = FileBuffer(transfer, 1)
    [message] = transfer.messages()
    buffer.place(message)
    with pytest.raises(RunError, match="cannot write the received file: No space left"):
        buffer.take(Act.COMBINE, message)


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
        buffer.take(Act.COMBINE, message)
        assert buffer.sha256() is None
    buffer.memory[places[0] : places[0] + MESSAGE] = bytearray(data[:MESSAGE])
    buffer.take(Act.COMBINE, messages[0])
    assert buffer.sha256() == hashlib.sha256(data).hexdigest()


def test_digests_that_differ_are_wrong():
    assert unequal({"h1": "aa", "h3": "aa"}) == unequal({"h1": None, "h3": None}) == []
    assert unequal({"h1": "aa", "h3": "ab"}) == ["the SHA-256 of both ends differ"]
    assert unequal({"h1": "aa", "h3": None}) == ["the SHA-256 of both ends differ"]


def done(number, *, status=0, length=MESSAGE):
    return Done("receive", 0, (0, 0, number), int(status), length, 1, 0, 0, 0, 0, 0)


def test_a_message_that_failed_is_the_end_of_the_transfer(tmp_path):
    sides = Sides(tmp_path, bytes(3 * MESSAGE))
    receiver, end = sides.both[1], sides.cable.messengers[1]
    receiver.prepare(end)
    receiver.complete(done(1, status=ibv_wc_status.IBV_WC_RETRY_EXC_ERR))
    assert receiver.failed
    assert receiver.done_bytes == 0
    assert receiver.result()["sha256"] is None


def test_a_message_of_another_length_ends_the_run(tmp_path):
    sides = Sides(tmp_path, bytes(3 * MESSAGE))
    with pytest.raises(RunError, match="is 9999 bytes long"):
        sides.both[1].complete(done(1, length=MESSAGE - 1))


def test_an_addition_that_comes_early_waits_for_its_turn():
    """And its room is free at once: another message takes it before the addition."""
    workload = Collective((0, 1, 2, 3), 4, 4, FLOAT32, "all-reduce", "binomial-tree")
    schedule = workload.schedule()
    buffer = HostBuffer(workload, schedule, 0, 1, 1)
    first, second = schedule.receives(0)
    before = buffer.buffer.copy()
    data = {first.key: np.float32([1e-8]), second.key: np.float32([1e8])}

    def arrive(message, act):
        at = buffer.place(message)
        buffer.memory[at : at + 4] = data[message.key].view(np.uint8)
        buffer.take(act, message)
        buffer.memory[at : at + 4] = 255  # what comes next

    arrive(second, Act.KEEP)
    assert (buffer.buffer == before).all()
    arrive(first, Act.COMBINE)
    buffer.take(Act.COMBINE, second)
    assert buffer.buffer == before + data[first.key] + data[second.key]
