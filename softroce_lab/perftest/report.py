# SPDX-License-Identifier: GPL-2.0-or-later
"""Results in perftest's words: its columns, and what --out_json writes, as JSON that parses."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from softroce_lab.perftest.end import Address
from softroce_lab.perftest.figures import Bandwidth, Latency
from softroce_lab.perftest.options import MOST_READS, PerfTest

RULE = "-" * 87
_MIB, _GIGABIT = 1 << 20, 1e9 / 8
_NAMES = {
    "write": "RDMA_Write",
    "send": "Send",
    "read": "RDMA_Read",
    "atomic": "Atomic FETCH_AND_ADD",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How results are written."""

    gbits: bool = False
    device: str = "softroce"
    gid_index: int = 1

    @property
    def unit(self) -> str:
        """Of bandwidths."""
        return "Gb/sec" if self.gbits else "MB/sec"

    def of(self, bytes_per_second: float) -> float:
        """A bandwidth in that unit."""
        return bytes_per_second / (_GIGABIT if self.gbits else _MIB)


def title(test: PerfTest) -> str:
    """As perftest calls a test."""
    kind = "Latency" if test.latency else "BW"
    return f"{_NAMES[test.verb]} {'Bidirectional ' if test.bidirectional else ''}{kind} Test"


def preamble(test: PerfTest, style: Style) -> str:
    """What perftest prints before it connects."""
    moderation = test.signal_every(test.sizes[-1])
    lines = [
        RULE,
        f"                    {title(test)}",
        f" Dual-port       : OFF\t\tDevice         : {style.device}",
        f" Number of qps   : {test.qps}\t\tTransport type : IB",
        f" Connection type : {test.service}\t\tUsing SRQ      : OFF",
        f" TX depth        : {test.tx_depth}",
        *([] if test.latency else [f" CQ Moderation   : {moderation}"]),
        f" Mtu             : {test.mtu}[B]",
        " Link type       : Ethernet",
        f" GID index       : {style.gid_index}",
        f" Outstand reads  : {MOST_READS}" if test.verb in ("read", "atomic")
        else " Max inline data : 0[B]",
        " rdma_cm QPs\t : OFF",
        " Data ex. method : Ethernet",
        RULE,
    ]  # fmt: skip
    return "\n".join(lines)


def addresses(side: str, each: Iterable[Address], test: PerfTest) -> str:
    """The lines of one side's queue pairs."""
    lines = []
    for one in each:
        line = f" {side} address: LID 0000 QPN {one.qpn:#06x} PSN {one.psn:#x}"
        if test.verb in ("read", "atomic"):
            line += f" OUT {one.reads:#04x}"
        if test.verb != "send":
            line += f" RKey {one.rkey:#08x} VAddr {one.vaddr:#018x}"
        lines += [line, f" GID: {_gid(one.ip)}"]
    return "\n".join(lines)


def _gid(ip: int) -> str:
    raw = ipaddress.ip_address(ip).packed
    if len(raw) == 4:
        raw = bytes(10) + b"\xff\xff" + raw
    return ":".join(f"{byte:02d}" for byte in raw)


def header(test: PerfTest, style: Style) -> str:
    """The names of the columns."""
    if not test.latency:
        unit = style.unit
        return (f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   "
                "MsgRate[Mpps]")  # fmt: skip
    if test.iterations is None:
        return " #bytes        #iterations       t_avg[usec]    tps average"
    return (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
        "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
    )


def row(found: Bandwidth | Latency, style: Style) -> str:
    """One size's line."""
    if isinstance(found, Bandwidth):
        peak, average = style.of(found.peak), style.of(found.average)
        return (f" {found.bytes:<7}    {found.iterations:<10}       {peak:<7.2f}            "
                f"{average:<7.2f}\t\t   {found.messages_per_second / 1e6:<7.6f}")  # fmt: skip
    if found.least is None:
        return (f" {found.bytes:<7}       {found.iterations}            {found.average:<7.2f}"
                f"        {found.transactions_per_second:<7.2f}")  # fmt: skip
    return (
        f" {found.bytes:<7} {found.iterations}          {found.least:<7.2f}        "
        f"{found.most:<7.2f}      {found.median:<7.2f}  \t       {found.average:<7.2f}     \t"
        f"{found.deviation:<7.2f}\t\t{found.p99:<7.2f} \t\t{found.p99_9:<7.2f}"
    )


def footnotes(found: Iterable[Bandwidth | Latency]) -> list[str]:
    """What the percentiles of too few iterations are; perftest's columns stay as they are."""
    few = {}
    for each in found:
        if isinstance(each, Latency) and (names := each.few_samples):
            few[each.bytes] = f"{', '.join(names)} of {each.iterations:,} iterations"
    return [
        f" {what} ({size} bytes): fewer than the percentile needs (99%: 100, 99.9%: 1,000)"
        for size, what in few.items()
    ]


def document(test: PerfTest, style: Style, found: Sequence[Bandwidth | Latency]) -> dict[str, Any]:
    """perftest's `test_info` and `results`; of several sizes (-a) a list of results."""
    results = [_results(each, style) for each in found]
    return {
        "test_info": {
            "test": title(test).replace(" ", "_"),
            "Dual_port": "OFF",
            "Device": style.device,
            "Number_of_qps": test.qps,
            "Transport_type": "IB",
            "Connection_type": test.service,
            "Using_SRQ": "OFF",
            "TX_depth": test.tx_depth,
            "CQ_Moderation": test.signal_every(test.sizes[-1]),
            "Mtu": test.mtu,
            "Link_type": "Ethernet",
            "GID_index": style.gid_index,
            "Max_inline_data": 0,
            "rdma_cm_QPs": "OFF",
            "Data_ex_method": "Ethernet",
        },
        "results": results[0] if len(test.sizes) == 1 else results,
    }


def _results(found: Bandwidth | Latency, style: Style) -> dict[str, Any]:
    if isinstance(found, Bandwidth):
        return {
            "MsgSize": found.bytes,
            "n_iterations": found.iterations,
            "BW_peak": round(style.of(found.peak), 6),
            "BW_average": round(style.of(found.average), 6),
            "BW_unit": style.unit,
            "MsgRate": round(found.messages_per_second / 1e6, 6),
        }
    values = {
        "t_min": found.least,
        "t_max": found.most,
        "t_typical": found.median,
        "t_avg": found.average,
        "t_stdev": found.deviation,
        "percentile_99": found.p99,
        "percentile_99.9": found.p99_9,
    }
    known = {name: round(value, 3) for name, value in values.items() if value is not None}
    if found.least is None:
        known["tps_average"] = round(found.transactions_per_second, 2)
    few = {"few_samples": found.few_samples} if found.few_samples else {}
    return {"MsgSize": found.bytes, "n_iterations": found.iterations, **known, **few}
