# SPDX-License-Identifier: GPL-2.0-or-later
"""What a lab on this machine can be at most. The virtual clock has none of these limits."""

from __future__ import annotations

from softroce_lab.inputs.yaml_source import NOWHERE, Source
from softroce_lab.plan.plan import Plan

MAX_PORTS = 4000
MTU_MIN_BYTES = 1280  # below, Linux has no IPv6 at an interface (RFC 8200, section 5)
MTU_MAX_BYTES = 3498  # the largest that XDP on veth takes without multi-buffer


def check(plan: Plan, source: Source = NOWHERE) -> None:
    """UserError, with the place in `source`, for a plan that no lab on this machine can be."""
    ports = 2 * len(plan.links)
    if ports > MAX_PORTS:
        what = f"{plan.name} has {ports} ports, a lab on this machine at most {MAX_PORTS}"
        hint = "a smaller topology, or the virtual clock: lab run"
        raise source.error(("topology",), what, hint=hint)
    if plan.mtu > MTU_MAX_BYTES:
        what = f"mtu {plan.mtu} is above {MTU_MAX_BYTES}, the most that XDP on veth takes"
        raise source.error(("mtu",), what, hint=f"mtu: {MTU_MAX_BYTES}, or the virtual clock")
    if plan.mtu < MTU_MIN_BYTES:
        what = f"mtu {plan.mtu} is below {MTU_MIN_BYTES}, the least that IPv6 takes"
        raise source.error(("mtu",), what, hint=f"mtu: {MTU_MIN_BYTES}, or the virtual clock")
