# SPDX-License-Identifier: GPL-2.0-or-later
"""pyverbs' name for what `softroce_lab.rnic.cm` has."""

from softroce_lab.rnic.cm import (
    CMID,
    AddrInfo,
    CMEvent,
    CMEventChannel,
    ConnParam,
    UDParam,
)

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "UDParam"]
