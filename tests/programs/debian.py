# SPDX-License-Identifier: GPL-2.0-or-later
"""What rdma-core's packages have: offsets of the headers' structures, symbols of the libraries."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

PACKAGES = {
    "12": ("bookworm", ["libibverbs1", "libibverbs-dev", "librdmacm1", "librdmacm-dev"]),
    "13": ("trixie", ["libibverbs1", "libibverbs-dev", "librdmacm1t64", "librdmacm-dev"]),
}
_ARCHIVE = "http://deb.debian.org/debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FETCH_S = 120
SOURCE = """\
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>
"""
_OWN = """\
Dir::Etc "{0}/etc";
Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
APT::Architecture "amd64";
APT::Sandbox::User "root";
"""
OURS = re.compile(r"(_?ibv_|verbs_|rdma_|_compat_ibv)")
_ENTRY = re.compile(r"<(\d+)><[0-9a-f]+>: Abbrev Number: \d+ \((DW_TAG_\w+)\)")
_FORM = re.compile(r"^\((data\d|string|udata|sdata)\)\s*")
_ATTRIBUTE = re.compile(r"(DW_AT_\w+)\s*:\s*(.*)$")


def exported(library):
    """(name, node, whether new programs get it) of each symbol."""
    shown = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    lines = [line.split() for line in shown.splitlines()]
    names = [words[7] for words in lines if len(words) > 7 and words[6] != "UND"]
    found = [re.fullmatch(r"(\w+)(@@?)([\w.]+)", name) for name in names]
    return {(m[1], m[3], m[2] == "@@") for m in found if m}


def unpack(release, folder):
    """The root directory of packages that are downloaded. subprocess.SubprocessError without."""
    suite, packages = PACKAGES[release]
    _download(folder, suite, packages)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    return folder / "root"


def _download(folder, suite, packages):
    for name in ("etc/preferences.d", "etc/apt.conf.d", "state/lists/partial",
                 "cache/archives/partial"):  # fmt: skip
        Path(folder, name).mkdir(parents=True)
    Path(folder, "status").touch()
    Path(folder, "etc/sources.list").write_text(f"deb [signed-by={_KEYS}] {_ARCHIVE} {suite} main")
    Path(folder, "apt.conf").write_text(_OWN.format(folder))
    apt = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    for argv in (["update", "--error-on=any"], ["download", *packages]):
        subprocess.run(["apt-get", "-q", *argv], cwd=folder, env=apt, check=True,
                       capture_output=True, timeout=_FETCH_S)  # fmt: skip


def of_headers(include="/usr/include"):
    """Sizes by `STRUCT` and offsets by `STRUCT.MEMBER`, bytes, as the compiler lays them out."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "layout.o")
        subprocess.run(
            ["cc", "-x", "c", "-", "-c", "-o", made, f"-I{include}", "-gdwarf-4",
             "-fno-eliminate-unused-debug-types"],
            input=SOURCE, text=True, check=True, capture_output=True,
        )  # fmt: skip
        shown = subprocess.run(["readelf", "--debug-dump=info", "--wide", made], check=True,
                               capture_output=True, text=True).stdout  # fmt: skip
    return dict(_rows(_entries(shown)))


def _entries(shown):
    """(depth, tag, attributes) of each entry of DWARF's tree."""
    entries = []
    for line in shown.splitlines():
        if begun := _ENTRY.search(line):
            entries.append((int(begun[1]), begun[2], {}))
        elif entries and (found := _ATTRIBUTE.search(line)):
            entries[-1][2][found[1]] = _FORM.sub("", found[2]).rpartition("): ")[2].strip()
    return entries


def _rows(entries):
    """Of named structures; members of unnamed ones inside have no offset of their own."""
    at, name = 0, ""
    for depth, tag, attributes in entries:
        if tag == "DW_TAG_structure_type" and depth == 1:
            at, name = depth, attributes.get("DW_AT_name", "")
            if OURS.match(name) and "DW_AT_byte_size" in attributes:
                yield name, int(attributes["DW_AT_byte_size"])
        elif depth <= at:
            name = ""
        elif tag == "DW_TAG_member" and depth == at + 1 and OURS.match(name):
            offset = attributes.get("DW_AT_data_member_location")
            if offset is not None and "DW_AT_name" in attributes:
                yield f"{name}.{attributes['DW_AT_name']}", int(offset)
