# SPDX-License-Identifier: GPL-2.0-or-later
"""A host process of a lab that writes down what its policy got and did, for a replay.

`RECORDED_TO` names the folder, which gets a file for each host.
"""

import os
import pickle
from pathlib import Path

from softroce_lab.experiment.hosts import process
from softroce_lab.experiment.hosts.opening import open_messenger
from tests.transports.replaying import Recording


class RecordedHost(process.HostProcess):
    """The same process, with a recording of its endpoint between the engine and the policy."""

    def open(self, memory):
        self._timing = self.tuning.timing
        self._recording = Recording(self.host)
        messenger = open_messenger(
            self.transport,
            self._recording,
            memory=memory,
            timing=self._timing,
            next_hop_mac=self.settings.gateway_mac,
            qkey=self.settings.qkey,
        )
        return [messenger]

    def figures(self):
        kept = (self._timing, self._recording.calls)
        Path(os.environ["RECORDED_TO"], self.settings.node).write_bytes(pickle.dumps(kept))
        return super().figures()


if __name__ == "__main__":
    process.HostProcess = RecordedHost
    process.main()
