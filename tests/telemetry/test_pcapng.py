# SPDX-License-Identifier: GPL-2.0-or-later
"""What is written as pcapng, other programs read."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapNgReader, rdpcap

from softroce_lab.telemetry import pcapng
from softroce_lab.telemetry.drops import CapturedPacket

LINKS = {4: "leaf1:p1->spine1:p1", 5: "spine1:p1->leaf1:p1"}
RULES = {2: "loss random 1%, rule spine-loss"}
FRAME = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.3") / UDP(sport=49152, dport=53) / b"abc")
EPOCH_NS = 1_700_000_000_123_456_789


def packet(time_ns: int, link: int = 4, rule: int | None = None, length: int = 2112):
    return CapturedPacket(time_ns, link, rule, 0, length, FRAME)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "trace.pcapng"
    packets = [packet(1), packet(2**32 + 5, link=5, rule=2), packet(2**33, rule=2)]
    count = pcapng.write(path, packets, link_names=LINKS, rule_names=RULES, epoch_ns=EPOCH_NS)
    assert count == 3
    return path


def test_scapy_reads_frames_and_comments(written):
    packets = rdpcap(str(written))
    assert [bytes(p) for p in packets] == [FRAME] * 3
    assert [p.wirelen for p in packets] == [2112] * 3
    comment = b"dropped: loss random 1%, rule spine-loss"
    assert [p.comments for p in packets] == [None, [comment], [comment]]


def test_times_are_exact_to_the_nanosecond_and_links_are_interfaces(written):
    reader = RawPcapNgReader(str(written))
    metadata = [meta for _, meta in reader]
    times = [(meta.tshigh << 32 | meta.tslow) for meta in metadata]
    assert times == [EPOCH_NS + 1, EPOCH_NS + 2**32 + 5, EPOCH_NS + 2**33]
    assert {meta.tsresol for meta in metadata} == {10**9}
    assert [meta.ifname for meta in metadata] == [
        LINKS[4].encode(),
        LINKS[5].encode(),
        LINKS[4].encode(),
    ]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_it(written):
    command = ["tshark", "-n", "-r", str(written), "-T", "json", "-e", "frame.time_epoch",
               "-e", "frame.comment", "-e", "frame.interface_name", "-e", "frame.len"]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    layers = [entry["_source"]["layers"] for entry in json.loads(result.stdout)]
    assert [layer["frame.interface_name"] for layer in layers] == [
        [LINKS[4]],
        [LINKS[5]],
        [LINKS[4]],
    ]
    assert [layer.get("frame.comment") for layer in layers] == [
        None,
        ["dropped: loss random 1%, rule spine-loss"],
        ["dropped: loss random 1%, rule spine-loss"],
    ]


@pytest.mark.parametrize("size", range(1, 9))
def test_frames_of_any_length_are_padded(tmp_path, size):
    path = tmp_path / "trace.pcapng"
    packets = [CapturedPacket(0, 4, 2, 0, size, bytes(range(size)))] * 2
    pcapng.write(path, packets, link_names=LINKS, rule_names=RULES)
    assert [bytes(data) for data, _ in RawPcapNgReader(str(path))] == [bytes(range(size))] * 2


def test_an_empty_trace_is_a_valid_file(tmp_path):
    path = tmp_path / "trace.pcapng"
    assert pcapng.write(path, [], link_names=LINKS, rule_names=RULES) == 0
    assert list(RawPcapNgReader(str(path))) == []


def test_an_unknown_link_is_refused(tmp_path):
    path = tmp_path / "trace.pcapng"
    with pytest.raises(KeyError):
        pcapng.write(path, [packet(0, link=6)], link_names=LINKS, rule_names=RULES)


@pytest.mark.parametrize(
    ("rule", "effects", "comment"),
    [
        (3, 1, b"dropped: rule 3"),  # a rule that was replaced meanwhile
        (None, 2, b"corrupted"),
        (None, 4 | 8, b"duplicated, reordered"),
    ],
)
def test_comments_say_what_was_done(tmp_path, rule, effects, comment):
    path = tmp_path / "trace.pcapng"
    captured = CapturedPacket(0, 4, rule, effects, len(FRAME), FRAME)
    pcapng.write(path, [captured], link_names=LINKS, rule_names=RULES)
    (read,) = rdpcap(str(path))
    assert read.comments == [comment]
