# SPDX-License-Identifier: GPL-2.0-or-later
"""Offsets of rdma-core's structures, as the compiler lays them out: headers to lines of text."""

import re
import subprocess
import tempfile
from pathlib import Path

SOURCE = """\
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>
"""
OURS = re.compile(r"(_?ibv_|verbs_|rdma_|_compat_ibv)")
_ENTRY = re.compile(r"<(\d+)><[0-9a-f]+>: Abbrev Number: \d+ \((DW_TAG_\w+)\)")
_FORM = re.compile(r"^\((data\d|string|udata|sdata)\)\s*")
_ATTRIBUTE = re.compile(r"(DW_AT_\w+)\s*:\s*(.*)$")


def of_headers(include="/usr/include"):
    """`STRUCT SIZE` and `STRUCT.MEMBER OFFSET`, decimal bytes, in the order of names."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "layout.o")
        subprocess.run(
            ["cc", "-x", "c", "-", "-c", "-o", made, f"-I{include}", "-gdwarf-4",
             "-fno-eliminate-unused-debug-types"],
            input=SOURCE, text=True, check=True, capture_output=True,
        )  # fmt: skip
        shown = subprocess.run(["readelf", "--debug-dump=info", "--wide", made], check=True,
                               capture_output=True, text=True).stdout  # fmt: skip
    return sorted(set(_lines(_entries(shown))))


def _entries(shown):
    """(depth, tag, attributes) of each entry of DWARF's tree."""
    entries = []
    for line in shown.splitlines():
        if begun := _ENTRY.search(line):
            entries.append((int(begun[1]), begun[2], {}))
        elif entries and (found := _ATTRIBUTE.search(line)):
            entries[-1][2][found[1]] = _FORM.sub("", found[2]).rpartition("): ")[2].strip()
    return entries


def _lines(entries):
    """Of named structures; members of unnamed ones inside have no offset of their own."""
    at, name = 0, ""
    for depth, tag, attributes in entries:
        if tag == "DW_TAG_structure_type" and depth == 1:
            at, name = depth, attributes.get("DW_AT_name", "")
            if OURS.match(name) and "DW_AT_byte_size" in attributes:
                yield f"{name} {attributes['DW_AT_byte_size']}"
        elif depth <= at:
            name = ""
        elif tag == "DW_TAG_member" and depth == at + 1 and OURS.match(name):
            offset = attributes.get("DW_AT_data_member_location")
            if offset is not None and "DW_AT_name" in attributes:
                yield f"{name}.{attributes['DW_AT_name']} {offset}"
