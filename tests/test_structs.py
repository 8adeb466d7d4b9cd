# SPDX-License-Identifier: GPL-2.0-or-later
"""Structs that Python reads are those of the headers: a member is one line of C."""

import runpy
import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path

import nanobind
import numpy as np
import pytest

from softroce_lab import _native
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.structs import Struct, enumerators

GENERATOR = PROJECT_ROOT / "native" / "bindings" / "struct_members.py"
LISTED = runpy.run_path(str(GENERATOR))
STRUCTS = sorted(_native.STRUCTS)


@pytest.fixture
def headers(tmp_path):
    """A copy of all that the generated file includes."""
    for name in ("native", "xdp"):
        shutil.copytree(PROJECT_ROOT / name, tmp_path / name)
    return tmp_path


def edit(headers, name, before, after):
    header = headers / name
    text = header.read_text()
    assert text.count(before) == 1
    header.write_text(text.replace(before, after))


def compiled(headers):
    """What the compiler says of the generated file."""
    (headers / "made.cpp").write_text(LISTED["source"](headers))
    folders = [headers, Path(nanobind.include_dir()), sysconfig.get_paths()["include"]]
    argv = [
        "c++",
        "-std=c++20",
        "-fsyntax-only",
        "-fvisibility=hidden",
        *(f"-I{each}" for each in folders),
    ]
    done = subprocess.run(
        [*argv, headers / "made.cpp"], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stderr


@pytest.mark.parametrize("name", STRUCTS)
def test_bytes_and_rows_have_the_size_of_the_struct(name):
    layout = Struct(name)
    assert np.dtype(layout.dtype).itemsize == layout.size == len(layout.pack())
    assert layout.unpack(bytes(layout.size))._fields == np.dtype(layout.dtype).names


def test_members_are_packed_by_name():
    key = Struct("lab_name_key")
    packed = key.pack(second=7, tuple=2)
    assert packed == struct.pack("=IIII", 0, 2, 0, 7)
    assert key.unpack(packed)._asdict() == {"link_slot": 0, "tuple": 2, "first": 0, "second": 7}
    with pytest.raises(TypeError, match="lab_name_key has no third"):
        key.pack(third=1)


def test_structs_inside_have_fields_of_their_own():
    rules = np.frombuffer(Struct("lab_fault_set").pack(count=3), Struct("lab_fault_set").dtype)[0]
    assert (rules["count"], rules["rule"].shape) == (3, (8,))
    assert rules["rule"]["window"]["length_ns"].tolist() == [0] * 8


def test_enumerators_are_named_without_what_they_share():
    assert enumerators("lab_distribution") == {"uniform": 0, "normal": 1, "pareto": 2}
    assert list(enumerators("monitor::Word")) == ["sync", "capture", "end", "count"]
    assert enumerators("statistics::Header")["names_at"] == 9


def test_a_line_of_c_is_a_member_in_python(headers):
    """And nothing else changes for it: the generated file has it, and compiles."""
    edit(
        headers, "xdp/lab_maps.h", "  lab_u64 no_route_roce;\n",
        "  lab_u64 no_route_roce;\n  lab_u64 added_a, added_b[2]; /* new */\n",
    )  # fmt: skip
    edit(
        headers, "native/wire/figures.hpp", "  std::uint64_t fair_turns;",
        "  std::uint64_t added = 0;  // new\n  std::uint64_t fair_turns;",
    )  # fmt: skip
    made = LISTED["source"](headers)
    for member in ("lab_counters::added_a", "lab_counters::added_b", "wire::StageFigures::added"):
        assert f"type_of_member<decltype({member})>" in made
    assert compiled(headers) == ""


def test_a_member_that_was_not_read_does_not_compile(headers):
    edit(
        headers, "xdp/lab_maps.h", "  lab_u64 no_route_roce;\n",
        "  lab_u64 no_route_roce;\n  struct { lab_u64 a; } inside;\n  lab_u8 end;\n",
    )  # fmt: skip
    assert "padding, or a member that was not read" in compiled(headers)
