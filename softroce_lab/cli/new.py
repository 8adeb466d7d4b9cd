# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab new transport`: write a template of a custom transport."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softroce_lab.cli import typed
from softroce_lab.errors import UserError

app = typer.Typer(add_completion=False, no_args_is_help=True)

_CLASS = "Mine"
_TEMPLATE = '''"""A transport of my own.

Run it: {lab} run ring-all-reduce --transport {file}:Mine --transport ud_rto
Test it: {lab} fuzz --transport {file}:Mine --seeds 100
"""

from softroce_lab.transports.policy import Feedback, MessagePolicy, Option, Retransmit, SetTimer


class Mine(MessagePolicy):
    """The receiver sends its bitmap; the sender retransmits what is missing after a timeout.

    The session acknowledges messages, keeps peers alive and gives up. Each hook returns a list of
    actions, which are applied after it returned.
    """

    name = "mine"
    options = (Option("rto", 3, "retransmission timeout, in SRTT", least=1, most=100),)

    # Receiver: `receive` is a posted receive.

    def on_first_packet(self, receive, now_ns):
        srtt_ns, rttvar_ns = self.rtt_ns(receive)
        return [SetTimer(receive, now_ns + srtt_ns // 4)]

    def on_last_packet(self, receive, now_ns):
        return [Feedback(receive)]  # sends the bitmap of missing packets

    def on_receive_timer(self, receive, now_ns):
        srtt_ns, rttvar_ns = self.rtt_ns(receive)
        interval_ns = self.backed_off_ns(receive, srtt_ns)  # longer without progress
        return [Feedback(receive), SetTimer(receive, now_ns + interval_ns)]

    # Sender: `send` is a posted send.

    def on_sent(self, send, now_ns):
        return [self.timeout(send, now_ns)]  # all its packets have left

    def on_send_timer(self, send, now_ns):
        # self.view.send_state(send.handle) has numpy arrays: attempts, paths, sent_ns.
        # self.missing(send) holds the packets that are not known to have arrived.
        return [Retransmit(send, self.missing(send)), self.timeout(send, now_ns)]

    def timeout(self, send, now_ns):
        srtt_ns, rttvar_ns = self.rtt_ns(send)
        rto_ns = max(self.values["rto"] * srtt_ns, self.timing.t_min_ns)
        return SetTimer(send, now_ns + self.backed_off_ns(send, rto_ns))
'''


@app.callback()
def new() -> None:
    """Write a template file."""


@app.command()
def transport(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The Python file to write.")],
) -> None:
    """Write a working, commented transport; never overwrite an existing file."""
    if file.suffix != ".py":
        raise UserError(f"{file} is no Python file", hint="a name that ends in .py")
    try:
        with file.open("x") as out:
            out.write(_TEMPLATE.format(file=_shown(file), lab=typed.name()))
    except FileExistsError:
        raise UserError(f"{file} exists", hint="another name") from None
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
    transports = f"--transport {_shown(file)}:{_CLASS} --transport ud_rto"
    print(f"{typed.name()} run ring-all-reduce {transports}")


def _shown(file: Path) -> str:
    return str(file) if file.is_absolute() or "/" in str(file) else f"./{file}"
