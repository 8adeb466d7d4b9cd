# SPDX-License-Identifier: GPL-2.0-or-later
"""The transports that may carry the RC queue pairs of unmodified programs.

`lab exec --transport` and the workload `program` refuse the same ones.
"""

from __future__ import annotations

import dataclasses

from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs.validation import KeyedError

FRAMING = "ud"
"""The only framing whose packets have room for the header of an operation."""


def fitted(transport: Transport) -> Transport:
    """The transport as programs use it.

    KeyedError, with the key of a transport's settings, for one that programs cannot use.
    """
    if transport.file is not None:
        raise own_policy(transport.reference)
    check_name(transport)
    if not transport.entry.striped:
        _refuse_settings(transport)
        return transport
    if transport.framing not in (None, FRAMING):
        what = f"programs need the framing {FRAMING}, not {transport.framing}"
        raise KeyedError("framing", what, "leave framing out")
    return dataclasses.replace(transport, framing=FRAMING)


def own_policy(reference: str) -> KeyedError:
    """The error for a policy of the user's own, `FILE:CLASS`."""
    what = f"{reference}: a program cannot use a policy of your own, which is written in Python"
    return KeyedError("policy", what, "a built-in transport, such as csa_ud")


def check_name(transport: Transport) -> None:
    """KeyedError for a built-in transport that programs cannot use, whatever its settings are."""
    name, entry = transport.name, transport.entry
    if entry.virtual_only:
        what = f"{name} exists on the virtual clock only, and programs run on the real one"
        raise KeyedError("name", what, "another transport, such as csa_ud")
    if entry.rails > 1:
        hint = 'rc with lab exec --shift, or in an experiment environment: {SOFTROCE_SHIFT: "1"}'
        raise KeyedError("name", f"{name} needs two devices of a host", hint)


def _refuse_settings(transport: Transport) -> None:
    control = [] if transport.congestion_control is None else ["congestion_control"]
    for key in (*control, *(knob for knob, _ in transport.set_knobs)):
        what = f"{transport.name} takes no options here: a program sets up its queue pairs itself"
        raise KeyedError(key, what, f"{transport.name} without {key}")
