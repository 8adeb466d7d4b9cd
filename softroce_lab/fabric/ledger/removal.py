# SPDX-License-Identifier: GPL-2.0-or-later
"""Taking away what a ledger lists: exactly that, in the reverse of the order it was made in.

Each removal first makes sure that the thing found is the thing recorded, and finding nothing is
success; so removal can be broken off anywhere and begun again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from softroce_lab.errors import LabError
from softroce_lab.fabric import fault_lock, mounted
from softroce_lab.fabric.bpf import bpffs as bpf_objects
from softroce_lab.fabric.bpf.bpffs import BpfObjects
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.identity import boot_id
from softroce_lab.fabric.ledger.ledger import Entry, Ledger
from softroce_lab.fabric.net import netns, programs
from softroce_lab.fabric.observe import counters_files as statistics

Say = Callable[[str], None]

FILE_SYSTEMS = {"bpffs": "bpf", "tmpfs": "tmpfs"}  # what an entry of this kind mounts

FREED_S = 2.0  # how long the kernel may take to free interfaces, programs and maps


def remove(ledger: Ledger, say: Say) -> None:
    """Remove the lab and its ledger, and wait until the kernel has freed interfaces and programs.

    `say` receives messages for the user.

    LabError if a process does not die of SIGKILL, or if the lab's directory holds foreign files;
    what is left is then still in the ledger.
    """
    if not ledger.history.header:  # nothing was made
        ledger.destroy()
        return
    ledger.enter_state("stopping")
    with fault_lock.ending(ledger.directory, say):
        objects = _bpf_objects(ledger)
        _remove_all(ledger, say)
        ledger.destroy()
    if left := bpf_objects.await_freed(objects, FREED_S):
        say(f"still in the kernel, because some process holds them or it frees them late: {left}")


def _remove_all(ledger: Ledger, say: Say) -> None:
    removers = _REMOVERS
    if ledger.history.header["boot"] == boot_id():
        _end_processes(ledger)
        _end_programs(ledger, say)
        _empty_inhabited_namespaces(ledger, say)
    else:
        removers = _REMOVERS | _AFTER_REBOOT
    for entry in reversed(list(ledger.history.entries.values())):
        removers[entry.kind](ledger, entry)
        ledger.strike(entry.id)


def _bpf_objects(ledger: Ledger) -> BpfObjects:
    """What the lab has in the kernel, to be seen gone in the end."""
    for entry in ledger.history.of_kind("bpffs"):
        path, source = ledger.directory / entry.facts["name"], entry.facts["source"]
        if mounted.is_mounted(path, FILE_SYSTEMS[entry.kind], source):
            return bpf_objects.pinned(path)
    return BpfObjects()


def identity_of(entry: Entry) -> netns.Identity:
    keys = ("cookie", "inode", "file_device", "file_inode")
    return netns.Identity(*(entry.facts[key] for key in keys))


def _end_processes(ledger: Ledger) -> None:
    """End all; SIGTERM goes to all at once, so that their times to comply overlap."""
    entries = ledger.history.of_kind("process")
    for entry in entries:
        known = process.recorded(entry)
        if known is not None:
            known.signal(signal.SIGTERM)
    for entry in reversed(entries):
        end_process(entry)
        ledger.strike(entry.id)


def end_process(entry: Entry) -> None:
    """End a process of the ledger. LabError if it does not die of SIGKILL."""
    known = process.recorded(entry)
    if known is not None and not known.end(process.GRACE_S):
        raise LabError(
            f"process {known.pid} ({entry.facts['role']}) does not end, not even by SIGKILL",
            hint="it may wait for a device; when it is gone, run: lab doctor --clean",
        )


def _end_programs(ledger: Ledger, say: Say) -> None:
    """End what `lab exec` started. While a namespace is open, no other gets its inode's number."""
    names: dict[int, str] = {}
    with contextlib.ExitStack() as stack:
        for entry in ledger.history.of_kind("netns"):
            fd = netns.opened(entry.facts["name"], identity_of(entry))
            if fd is not None:
                stack.callback(os.close, fd)
                names[entry.facts["inode"]] = entry.facts["name"]
        for inode, pids in programs.running(names.keys()).items():
            if pids:
                say(f"ending in {names[inode]}: {_named(pids)}")
        programs.terminate(names.keys(), process.GRACE_S)


def _unmount(ledger: Ledger, entry: Entry) -> None:
    path, source = ledger.directory / entry.facts["name"], entry.facts["source"]
    mounted.unmount(path, FILE_SYSTEMS[entry.kind], source)


def _unlink(ledger: Ledger, entry: Entry) -> None:
    (ledger.directory / entry.facts["name"]).unlink(missing_ok=True)


def _remove_statistics(ledger: Ledger, entry: Entry) -> None:
    """The counters of processes that were killed; those of others went with them."""
    statistics.remove(ledger.directory / entry.facts["name"])


def _drop_name(_: Ledger, entry: Entry) -> None:
    netns.remove(entry.facts["name"], identity_of(entry))


def _drop_name_file(_: Ledger, entry: Entry) -> None:
    netns.remove_file(entry.facts["name"], identity_of(entry))


def _nothing_left(_: Ledger, entry: Entry) -> None:
    """Ended with what held it, as a veth pair does with its namespaces."""


_REMOVERS: dict[str, Callable[[Ledger, Entry], None]] = {
    **dict.fromkeys(FILE_SYSTEMS, _unmount),
    "file": _unlink,
    "statistics": _remove_statistics,
    "netns": _drop_name,
    "link": _nothing_left,
}

# What an earlier boot had in the kernel ended with it; where /run is on a disk, files stayed.
_AFTER_REBOOT = {"process": _nothing_left, "netns": _drop_name_file}


def _empty_inhabited_namespaces(ledger: Ledger, say: Say) -> None:
    """Delete the links in namespaces with foreign processes, which outlast their names."""
    entries = ledger.history.of_kind("netns")
    found = netns.inhabitants(entry.facts["inode"] for entry in entries)
    for entry in entries:
        if strangers := found[entry.facts["inode"]]:
            _delete_links(ledger, entry)
            name, running = entry.facts["name"], _named(strangers)
            say(f"still running in {name}, without its links from now on: {running}")


def _delete_links(ledger: Ledger, namespace: Entry) -> None:
    from softroce_lab.fabric.net import links  # late: it imports plans and faults, and this is rare

    ends = [end for link in ledger.history.of_kind("link") for end in link.facts["ends"]]
    here = [(index, port) for name, index, port in ends if name == namespace.facts["name"]]
    fd = netns.opened(namespace.facts["name"], identity_of(namespace))
    if fd is not None:
        with contextlib.closing(os.fdopen(fd)), netns.entered(fd):
            links.delete(here)


def _named(pids: list[int]) -> str:
    return ", ".join(f"{programs.name(pid)} ({pid})" for pid in sorted(pids))
