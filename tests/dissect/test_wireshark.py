# SPDX-License-Identifier: GPL-2.0-or-later
"""Wireshark's dissector: where it lies, whose files it leaves, and what it makes of anything."""

import dataclasses
import os
import random
import re
import struct
import tempfile
from pathlib import Path

import pytest

from softroce_lab import _native
from softroce_lab.dissect import (
    LabHeader,
    PacketSet,
    description,
    exhibit,
    lua,
    parse,
    wireshark,
)
from softroce_lab.dissect.lab import CONTROLS
from softroce_lab.dissect.wireshark import State
from softroce_lab.errors import EnvironmentLackError, UserError
from softroce_lab.transports import sdr
from tests.conftest import NOBODY
from tests.dissect import readers, transports, tshark
from tests.native import frames

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


# ---------------------------------------------------------------- installed, renewed, removed


@pytest.fixture
def place(tmp_path):
    return wireshark.named(tmp_path / "a/b/plugins")


def test_it_comes_and_goes(place):
    assert wireshark.inspect(place).state is State.ABSENT
    assert not wireshark.uninstall(place)
    wireshark.install(place)
    found = wireshark.inspect(place)
    assert (found.state, found.path) == (State.CURRENT, place.folder / "softroce.lua")
    assert found.path.read_text() == wireshark.program()
    assert found.path.stat().st_mode & 0o777 == 0o644
    assert wireshark.uninstall(place)
    assert list(place.folder.iterdir()) == []


def test_one_of_another_version_is_renewed(place):
    wireshark.install(place)
    path = wireshark.inspect(place).path
    path.write_text(lua.dissector("0.0.0"))
    assert wireshark.inspect(place).state is State.OUTDATED
    wireshark.install(place)
    assert wireshark.inspect(place).state is State.CURRENT


@pytest.mark.parametrize("text", ["", "-- my own\n", " " + lua.MARK])
def test_somebody_else_s_file_is_left_alone(place, text):
    place.folder.mkdir(parents=True)
    path = place.folder / "softroce.lua"
    path.write_text(text)
    for act in (wireshark.install, wireshark.uninstall):
        with pytest.raises(UserError, match=r"softroce\.lua is not of softroce_lab"):
            act(place)
    assert path.read_text() == text
    assert list(place.folder.iterdir()) == [path]


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Not a directory"):
        wireshark.install(wireshark.named(tmp_path / "file/plugins"))


def test_the_own_folder_is_the_one_that_wireshark_names(tmp_path, monkeypatch):
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    named = wireshark.personal()
    assert named.folder == tmp_path / tshark.PLUGINS
    monkeypatch.setattr(wireshark, "_READERS", ("no-such-program",))
    assert wireshark.personal() == named
    with pytest.raises(EnvironmentLackError, match="--output"):
        wireshark.everyones()


def test_the_folder_for_all_is_wireshark_s(tmp_path):
    folder = wireshark.everyones().folder
    assert folder.name == "plugins"
    assert folder.parent.name == "wireshark"
    assert str(folder) in tshark.run(tmp_path, "-G", "folders")


@ROOT_ONLY
def test_under_sudo_it_is_the_user_s_own(monkeypatch):
    """Written with the user's rights: a link leads no further than the user may go."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    user = wireshark.personal().owner
    assert user.uid == NOBODY
    with tempfile.TemporaryDirectory() as top:
        home, roots = Path(top) / "home", Path(top) / "roots"
        Path(top).chmod(0o711)
        for folder in (home, roots):
            folder.mkdir(mode=0o755)
        os.chown(home, NOBODY, user.gid)
        wireshark.install(wireshark.Place(home / "plugins", user))
        for path in (home / "plugins", home / "plugins/softroce.lua"):
            assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, user.gid)
        assert os.geteuid() == 0
        (home / "link").symlink_to(roots)
        with pytest.raises(UserError, match="Permission denied"):
            wireshark.install(wireshark.Place(home / "link", user))
        assert list(roots.iterdir()) == []


def test_an_unknown_user_behind_sudo_is_told(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "3999999999")
    with pytest.raises(UserError, match="no user 3999999999"):
        wireshark.personal()


# ---------------------------------------------------------------- what it makes of anything

INFO = ("_ws.col.Protocol", "_ws.col.Info", "_ws.malformed", "_ws.lua.text", "softroce.kind")


@pytest.fixture(scope="module")
def striped():
    return transports.striped("csa_ud", ipv6=False)


def test_it_comes_before_wireshark_s_own_guesses(striped, tmp_path):
    """With every heuristic of Wireshark's on, as users have them."""
    capture = tshark.write_pcap(tmp_path / "x.pcap", striped)
    reported = tshark.run(tmp_path, "-r", str(capture), "-Y", "softroce", guesses=True)
    assert len(reported.splitlines()) == len(striped)


def test_its_lines_say_what_packets_are(striped, tmp_path):
    capture = tshark.write_pcap(tmp_path / "x.pcap", striped)
    lines = tshark.fields(tmp_path, capture, INFO)
    infos = [line["_ws.col.Info"][0] for line in lines]
    assert {line["_ws.col.Protocol"][0] for line in lines} == {"softroce"}
    data = [text for text in infos if text.startswith("data ")]
    assert data[0] == "data 7.0.1 id 0 packet 0/1"
    assert any(re.fullmatch(r"control \d+: NACK", text) for text in infos)
    assert any(text.endswith("receiver report") for text in infos)
    assert any(re.fullmatch(r"probe \d+: path probe", text) for text in infos)
    assert any(text.endswith("attempt 1") for text in data)


@pytest.mark.parametrize("snap", [64, 100, 128])
def test_snapped_packets_make_no_errors(striped, snap, tmp_path):
    capture = tshark.write_pcap(tmp_path / "x.pcap", striped, snap)
    lines = tshark.fields(tmp_path, capture, INFO)
    headers = frames.V4.lab_at + description.HEADER_BYTES
    ours = [n for n, frame in enumerate(striped) if min(len(frame) - 4, snap) >= headers]
    assert [n for n, line in enumerate(lines) if "softroce.kind" in line] == ours
    assert len(lines) == len(striped)
    assert not any("_ws.lua.text" in line for line in lines)
    infos = [line["_ws.col.Info"][0] for line in lines if "softroce.kind" in line]
    assert all(
        text.startswith(("data ", "parity ", "control ", "report ", "probe ")) for text in infos
    )


OF_AN_OPERATION = frames.Frame(
    lab=frames.Lab(version=4, operation=0x101, step=0x1F2, message=7, message_id=4, index=3,
                   count=68, length=66_000),
    lab_operation=frames.Operation(verb=0x83, receive=9, connection=2**24 - 1,
                               remote_address=2**64 - 2, rkey=2**32 - 3, argument=2**31),
    payload=bytes(60),
)  # fmt: skip


@pytest.mark.parametrize("snap", [126, 128, 65535])
def test_an_operation_is_told_by_all_readers(snap, tmp_path):
    """As far as it was captured: 126 bytes reach to its end."""
    made = [OF_AN_OPERATION, OF_AN_OPERATION.but(kind=4, index=70, attempt=1, operation=0x200)]
    encoded = [OF_AN_OPERATION.encode(), made[1].encode()]
    capture = tshark.write_pcap(tmp_path / "x.pcap", encoded, snap)
    names = [f"softroce.op.{part.name}" for part in description.OPERATION.parts]
    lines = tshark.fields(tmp_path, capture, [*INFO, *names])
    assert [line["_ws.col.Info"][0] for line in lines] == [
        "SEND 7 of QP 0x101f2 id 4 packet 3/68",
        "parity of result of SEND 7 of QP 0x1f2 id 4 packet 70/68 attempt 1",
    ]
    assert not any("_ws.lua.text" in line for line in lines)
    for frame, line in zip(encoded, lines, strict=True):
        assert parse(frame[:snap])[LabHeader].mysummary() == line["_ws.col.Info"][0]
        assert [int(line[name][0]) for name in names] == [
            1, 3, 9, 0, 2**24 - 1, 2**64 - 2, 2**32 - 3, 2**31,
        ]  # fmt: skip


def test_an_operation_that_is_cut_is_not_told(tmp_path):
    capture = tshark.write_pcap(tmp_path / "x.pcap", [OF_AN_OPERATION.encode()], 125)
    (line,) = tshark.fields(tmp_path, capture, [*INFO, "softroce.op.verb"])
    assert not {"softroce.kind", "softroce.op.verb", "_ws.lua.text"} & line.keys()


@pytest.mark.parametrize("snap", [128, 65535])
@pytest.mark.parametrize("source", [0x0A000001, 0xFD << 120 | 1], ids=["IPv4", "IPv6"])
def test_all_readers_say_whether_the_last_link_trimmed_a_packet(source, snap, tmp_path):
    """A packet with the DSCP of trimmed packets is not trimmed unless its header says so."""
    cases = (
        ("", 0, description.TRIM_LAST_DSCP),
        ("trimmed", 1, 47),
        ("trimmed (last hop)", 1, description.TRIM_LAST_DSCP),
    )
    made = [
        frames.Frame(
            source_ip=source, ecn=dscp << 2 | 2, lab=frames.Lab(trimmed=flag), payload=bytes(60)
        ).encode()
        for _, flag, dscp in cases
    ]
    capture = tshark.write_pcap(tmp_path / "x.pcap", made, snap)
    infos = [line["_ws.col.Info"][0] for line in tshark.fields(tmp_path, capture, INFO)]
    trees = tshark.run(tmp_path, "-r", str(capture), "-O", "softroce")
    headers = re.findall(r"^softroce_lab(.*)$", trees, re.MULTILINE)
    for (words, _, _), frame, info, header in zip(cases, made, infos, headers, strict=True):
        line = f"data 0.0.0 id 0 packet 0/1 {words}".rstrip()
        assert info == line
        assert header == (f" {words}" if words else "")
        assert parse(frame)[LabHeader].mysummary() == line
        shown = re.search(r"trimmed += (.*)$", exhibit.show(frame), re.MULTILINE)[1].strip()
        assert shown == (f"1 [{words}]" if words else "0")


MEANT = ("softroce.imm.slot", "softroce.imm.offset", "softroce.imm.user")
CLEARED = ("softroce.sdr_clear.number", "softroce.sdr_clear.key", "softroce.sdr_clear.length")


def with_immediate(opcode, value):
    return written(opcode, bytes(1024), **{"infiniband.immdt": value})


def written(opcode, payload, **fields):
    names = {"udp.srcport": 0xC001, "infiniband.bth.opcode": opcode, "infiniband.bth.destqp": 17}
    return _native.encode_frame(names | {"payload": payload} | fields)


@pytest.mark.parametrize("snap", [74, 65535])
def test_an_immediate_is_interpreted_beside_wireshark_s_own(snap, tmp_path):
    """Of every packet with this opcode and of no other one, cut or not."""
    values = (0, 1 << 22, 0xFFFFFFFF, 0xC00115, 1 << 4, 1 << 21, 15)
    made = [with_immediate(opcode, value) for opcode in (0x2B, 0x0B, 0x29) for value in values]
    capture = tshark.write_pcap(tmp_path / "x.pcap", made, snap)
    names = ["infiniband.immdt", *MEANT, "_ws.lua.text", "frame.len"]
    lines = tshark.fields(tmp_path, capture, names)
    for value, line in zip(values, lines, strict=False):
        assert int(line["infiniband.immdt"][0].replace(":", ""), 16) == value
        assert [int(line[name][0]) for name in MEANT] == list(sdr.parsed(value))
    assert not any(name in line for line in lines[len(values) :] for name in MEANT)
    assert not any("_ws.lua.text" in line for line in lines)


def test_its_titles_say_that_they_are_interpretations(tmp_path):
    made = [with_immediate(0x2B, 0xC00115), written(0x04, sdr.Clear(4, 9, 5000).encode())]
    shown = tshark.run(tmp_path, "-r", str(tshark.write_pcap(tmp_path / "x.pcap", made)), "-V")
    for text in (
        "[immediate, if of the framing uc_immediate or the SDR SDK: slot 3, offset 17, user 5]",
        "[0000 0000 11.. .... = Slot: 3]",
        "[SDR clear to send, if of the SDR SDK: number 4, key 0x9, length 5000]",
        "[Length in bytes: 5000]",
    ):
        assert text in shown


def test_a_filter_finds_clears_to_send_and_what_could_be_none_is_left(tmp_path):
    """Whose data stay there for other readers; the packet does not count as the lab's."""
    fits = sdr.Clear(4, 2**32 - 1, description.MOST_SLOT_BYTES)
    bodies = [
        (0x04, fits.encode()),
        (0x24, fits.encode()),
        (0x04, sdr.Clear(4, 9, 0).encode()),
        (0x04, sdr.Clear(4, 9, description.MOST_SLOT_BYTES + 1).encode()),
        (0x04, sdr.Clear(4, 9, 2**32 + 5).encode()),
        (0x04, fits.encode() + b"1"),
        (0x04, fits.encode()[:-1]),  # with its padding 16 bytes
    ]
    made = [written(opcode, body) for opcode, body in bodies]
    capture = tshark.write_pcap(tmp_path / "x.pcap", made)
    (line,) = tshark.fields(
        tmp_path, capture, ["frame.number", *CLEARED], "-Y", "softroce.sdr_clear"
    )
    assert line["frame.number"] == ["1"]
    assert [int(line[name][0]) for name in CLEARED] == list(dataclasses.astuple(fits))
    assert tshark.run(tmp_path, "-r", str(capture), "-Y", "softroce") == ""
    data = tshark.fields(tmp_path, capture, ["data.data"])
    assert [bytes.fromhex(each["data.data"][0].replace(":", "")) for each in data][:3] == [
        body for _, body in bodies[:3]
    ]


def test_malformed_bodies_are_told_as_our_layers_tell_them(tmp_path):
    """Random ones, and packet sets with random forms, counts and bits; seeded."""
    made = list(_malformed(random.Random(5)))
    capture = tshark.write_pcap(tmp_path / "x.pcap", made)
    lines = tshark.fields(tmp_path, capture, [*INFO, readers.SET_TEXT])
    assert len(lines) == len(made)
    texts = 0
    for frame, line in zip(made, lines, strict=True):
        assert "softroce.kind" in line
        assert "_ws.lua.text" not in line
        body = parse(frame)[LabHeader].payload
        sets = [each for each in getattr(body, "missing", []) if isinstance(each, PacketSet)]
        if readers.SET_TEXT in line and sets:
            assert line[readers.SET_TEXT] == [sets[0].missing()]
            texts += 1
    assert texts > 100


def _malformed(draw: random.Random):
    sack = bytes(CONTROLS[description.SACK]())
    for _ in range(150):
        count = draw.choice((0, 1, 7, 8, 9, 40, 2**20, 2**20 + 1, 2**32 - 1))
        head = struct.pack(">BII", draw.randrange(3), draw.getrandbits(32), count)
        bits = draw.randbytes(draw.choice((0, 1, 1, 2, 5, 6)))
        yield _frame(description.CONTROL, sack + head + bits)
    for _ in range(150):
        kind = draw.choice((description.CONTROL, description.REPORT))
        first = bytes([draw.randrange(10)])
        yield _frame(kind, (first + draw.randbytes(draw.randrange(60)))[: draw.randrange(60)])


def _frame(kind, body):
    return frames.Frame(lab=frames.Lab(kind=kind, length=len(body)), payload=body).encode()
