# SPDX-License-Identifier: GPL-2.0-or-later
"""Options of `csa_ud`, whose recovery is native/transport/csa_ud.cpp."""

from __future__ import annotations

from softroce_lab.recovery.options import Option

_PARTS = {
    1: Option("path_numbers", True, "losses are found by numbers on paths, else by timers"),
    2: Option("probes", True, "a probe behind the last packet shows what is lost of the tail"),
    4: Option("probe_repeats", True, "a probe that nothing answers is repeated"),
    8: Option("joined_reports", True, "receiver reports go with acknowledgements and NACKs"),
    16: Option(
        "reordering_window", True, "the reordering window of a path adapts, else it stays 0"
    ),
    32: Option("port_trials", True, "a path that fell silent tries its first source port again"),
    64: Option("path_choice", True, "a packet takes the path with the fewest packets on their way"),
}
PARTS = {option.name: bit for bit, option in _PARTS.items()}
"""Of the engine, by bits of enum Mechanism (native/engine/striped/message_config.hpp)."""

OPTIONS = (
    *_PARTS.values(),
    Option(
        "immediate_acks",
        True,
        "a complete message is acknowledged at once, else after SRTT / 4 with others",
    ),
    Option("path_health", True, "a path that loses more than others gets another source port"),
    Option(
        "interval",
        "linear",
        "rule for the time between two loss checks of a message",
        choices=("exponential", "fixed", "linear"),
    ),
)
