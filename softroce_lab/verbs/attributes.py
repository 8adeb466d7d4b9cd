# SPDX-License-Identifier: GPL-2.0-or-later
"""What can be asked about the device and its port."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import softroce_lab
from softroce_lab.verbs.base import table
from softroce_lab.verbs.enums import (
    IBV_ATOMIC_HCA,
    IBV_LINK_LAYER_ETHERNET,
    IBV_PORT_ACTIVE,
    ibv_atomic_cap,
    ibv_link_layer,
    ibv_mtu,
    ibv_port_state,
)

if TYPE_CHECKING:
    from softroce_lab._native import Endpoint

MAX_CQE = 1 << 22
"""Most completions that a completion queue can be asked to hold."""

MAX_RD_ATOMIC = 128
"""Most READs and atomics outstanding on a queue pair, either way."""

_MOST = 2**31 - 1  # bounded by memory alone


@dataclasses.dataclass(frozen=True)
class DeviceAttr:
    """`struct ibv_device_attr`, as far as the RNIC has it."""

    fw_version: str
    node_guid: int
    sys_image_guid: int
    max_mr_size: int
    page_size_cap: int
    vendor_id: int
    vendor_part_id: int
    hw_ver: int
    max_qp: int
    max_qp_wr: int
    device_cap_flags: int
    max_sge: int
    max_sge_rd: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_pd: int
    max_qp_rd_atom: int
    max_res_rd_atom: int
    max_qp_init_rd_atom: int
    atomic_caps: ibv_atomic_cap
    max_ah: int
    max_srq: int
    max_srq_wr: int
    max_srq_sge: int
    max_pkeys: int
    local_ca_ack_delay: int
    phys_port_cnt: int

    def __str__(self) -> str:
        return table(vars(self).items())


@dataclasses.dataclass(frozen=True)
class PortAttr:
    """`struct ibv_port_attr`."""

    state: ibv_port_state
    max_mtu: ibv_mtu
    active_mtu: ibv_mtu
    gid_tbl_len: int
    port_cap_flags: int
    max_msg_sz: int
    bad_pkey_cntr: int
    qkey_viol_cntr: int
    pkey_tbl_len: int
    lid: int
    sm_lid: int
    lmc: int
    max_vl_num: int
    sm_sl: int
    subnet_timeout: int
    init_type_reply: int
    active_width: int
    active_speed: int
    phys_state: int
    link_layer: ibv_link_layer
    flags: int
    port_cap_flags2: int

    def __str__(self) -> str:
        return table(vars(self).items())


def device_attr(endpoint: Endpoint) -> DeviceAttr:
    """Limits of an endpoint's RNIC."""
    limits: dict[str, int] = endpoint.limits()
    guid = int(endpoint.address) & (1 << 64) - 1
    return DeviceAttr(
        fw_version=softroce_lab.__version__,
        node_guid=guid,
        sys_image_guid=guid,
        max_mr_size=(1 << 64) - 1,
        page_size_cap=0xFFFFF000,
        vendor_id=0,
        vendor_part_id=0,
        hw_ver=0,
        max_qp=limits["max_qp"],
        max_qp_wr=limits["max_qp_wr"],
        device_cap_flags=0,
        max_sge=limits["max_sge"],
        max_sge_rd=limits["max_sge"],
        max_cq=_MOST,
        max_cqe=MAX_CQE,
        max_mr=_MOST,
        max_pd=_MOST,
        max_qp_rd_atom=MAX_RD_ATOMIC,
        max_res_rd_atom=MAX_RD_ATOMIC * limits["max_qp"],
        max_qp_init_rd_atom=MAX_RD_ATOMIC,
        atomic_caps=IBV_ATOMIC_HCA,
        max_ah=_MOST,
        max_srq=limits["max_srq"],
        max_srq_wr=limits["max_srq_wr"],
        max_srq_sge=limits["max_sge"],
        max_pkeys=1,
        local_ca_ack_delay=15,  # 134 ms, as Linux's rxe reports
        phys_port_cnt=1,
    )


def port_attr(endpoint: Endpoint) -> PortAttr:
    """State of an endpoint's port."""
    mtu = ibv_mtu(int(endpoint.path_mtu).bit_length() - 8)  # IBV_MTU_256 is 1
    counters: dict[str, int] = endpoint.counters()
    return PortAttr(
        state=IBV_PORT_ACTIVE,
        max_mtu=mtu,
        active_mtu=mtu,
        gid_tbl_len=len(endpoint.gids()),
        port_cap_flags=1 << 16 | 1 << 26,  # IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS
        max_msg_sz=1 << 31,  # IBA 9.7.1
        bad_pkey_cntr=counters["rx_wrong_pkey"] & 0xFFFF,
        qkey_viol_cntr=counters["rx_wrong_qkey"] & 0xFFFF,
        pkey_tbl_len=1,
        lid=0,
        sm_lid=0,
        lmc=0,
        max_vl_num=1,
        sm_sl=0,
        subnet_timeout=0,
        init_type_reply=0,
        active_width=1,  # 1X
        active_speed=1,  # 2.5 Gb/s: nothing is known of the wire; rxe reports it, too
        phys_state=5,  # link up
        link_layer=IBV_LINK_LAYER_ETHERNET,
        flags=1,  # IBV_QPF_GRH_REQUIRED
        port_cap_flags2=0,
    )
