# SPDX-License-Identifier: GPL-2.0-or-later
"""The transport that carries the RC queue pairs of unmodified programs.

A program's RNIC is in the program's own process, without Python. So its configuration is a text,
which the environment hands on to it (native/verbs/settings.hpp).
"""

from __future__ import annotations

import dataclasses

from softroce_lab.errors import UserError
from softroce_lab.experiment.hosts.opening import host_config
from softroce_lab.experiment.hosts.settings import PACING_SLACK_NS
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.experiment.transports import policy_file, written
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs.validation import did_you_mean
from softroce_lab.plan.plan import Plan
from softroce_lab.programs.device import device
from softroce_lab.transports import registry

FRAMING = "ud"
"""The only framing whose packets have room for the header of an operation."""


def of_argument(text: str) -> Transport | None:
    """The transport of `--transport NAME[,OPTION=VALUE...]`. UserError.

    None: `rc`, which needs no configuration.
    """
    name, comma, _ = text.partition(",")
    if policy_file.is_reference(name):
        what = f"{name}: a program cannot use a policy of your own, which is written in Python"
        raise UserError(what, hint="a built-in transport, such as csa_ud")
    if name not in registry.known():
        near = did_you_mean(name, registry.transports())
        raise UserError(f"unknown transport {name!r}", hint=near)
    entry = registry.find(name)
    if entry.virtual_only:
        what = f"{name} exists on the virtual clock only, and programs run on the real one"
        raise UserError(what, hint="another transport, such as csa_ud")
    if entry.rails > 1:
        what = f"{name} needs two devices of a host"
        raise UserError(what, hint="--shift instead of --transport")
    if not entry.striped:
        if comma:
            what = f"{name} takes no options here: a program sets up its queue pairs itself"
            raise UserError(what, hint=f"--transport {name}")
        return None
    chosen = written.with_settings(text)
    if chosen.framing not in (None, FRAMING):
        what = f"programs need the framing {FRAMING}, not {chosen.framing}"
        raise UserError(what, hint="leave framing= out")
    return dataclasses.replace(chosen, framing=FRAMING)


def text(transport: Transport, plan: Plan) -> str:
    """The configuration of all RNICs of a lab's programs, in one line. UserError."""
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
