# SPDX-License-Identifier: GPL-2.0-or-later
"""The transport that carries the RC queue pairs of unmodified programs.

A program's RNIC is in the program's own process, without Python. So its configuration is a text,
which the environment hands on to it (native/verbs/settings.hpp).
"""

from __future__ import annotations

from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts.opening import host_config
from softroce_lab.experiment.hosts.settings import PACING_SLACK_NS
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.experiment.transports import for_programs, policy_file, written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan.plan import Plan
from softroce_lab.programs.device import device
from softroce_lab.transports import registry


def of_argument(text: str) -> Transport | None:
    """The transport of `--transport NAME[,OPTION=VALUE...]`. UserError.

    None: `rc`, which needs no configuration.
    """
    name, _, _ = text.partition(",")
    if policy_file.is_reference(name):
        raise for_programs.own_policy(name)
    if name not in registry.known():
        near = did_you_mean(name, registry.transports())
        raise UserError(f"unknown transport {name!r}", hint=near)
    for_programs.check_name(Transport.named(name))
    chosen = for_programs.fitted(written.with_settings(text))
    return chosen if chosen.entry.striped else None


def text(transport: Transport, plan: Plan) -> str:
    """The configuration of all RNICs of a lab's programs, in one line. UserError.

    `transport`: as `for_programs.fitted` returns it, and not `rc`.
    """
    tuning = on_machine(transport, plan, ip_version=6)  # frames of both versions fit then
    config = host_config(
        transport,
        tuning,
        qkey=0,
        path_mtu=device.path_mtu(plan.mtu),
        carries_payload=True,
        carries_operations=True,
        pacing_slack_ns=PACING_SLACK_NS,
    )
    line: str = config.text(one_line=True)
    return line
