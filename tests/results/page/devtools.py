# SPDX-License-Identifier: GPL-2.0-or-later
"""A page in Debian's Chromium, spoken to over its DevTools protocol, through a pipe.

The browser reads requests from its file descriptor 3 and writes responses and events to 4, each a
JSON document that a zero byte ends (`--remote-debugging-pipe`). No port is opened.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time

from tests.results.page.browser import ARGUMENTS, chromium

ANSWER_S = 60.0  # within which every request is answered


class DevTools:
    """A browser with one page. What its console, its scripts and its network report is kept."""

    def __init__(self, folder, *, width=1280, height=900):
        self._complaints = folder / "stderr"
        ours, theirs = os.pipe(), os.pipe()  # requests, responses
        argv = [chromium(), *ARGUMENTS, "--remote-debugging-pipe",
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        shell = ["bash", "-c", f'exec 3<&{ours[0]} 4>&{theirs[1]}; exec "$@"', "bash", *argv]
        self._process = subprocess.Popen(
            shell, pass_fds=(ours[0], theirs[1]), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=self._complaints.open("w"),
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self._requests, self._responses = ours[1], theirs[0]
        self._held, self._number, self._session = b"", 0, None
        self.events = []
        (target,) = (
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._requests)
        os.close(self._responses)

    def call(self, method, **parameters):
        """The result of a request."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        ends = time.monotonic() + ANSWER_S
        while (answer := self._next(ends)).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self, ends):
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._responses], [], [], max(0, ends - time.monotonic()))
            assert ready, f"the browser has not answered for {ANSWER_S:.0f} s"
            piece = os.read(self._responses, 1 << 20)
            assert piece, f"the browser has ended: {self._complaints.read_text()[-500:]}"
            self._held += piece
        document, _, self._held = self._held.partition(b"\0")
        return json.loads(document)

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                          returnByValue=True, userGesture=True)  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def before_load(self, script):
        """Run a script in the page before its own."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, path):
        """Load a page of the lab and wait until its charts and ladders are drawn."""
        self.call("Page.navigate", url=path.as_uri())
        ends = time.monotonic() + ANSWER_S
        while self.run("document.documentElement?.dataset.ready") != "yes":
            assert time.monotonic() < ends, f"not ready: {self.complaints}"
            time.sleep(0.02)

    def text(self, selector):
        """What a reader sees of an element."""
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def rows(self, caption):
        """The cells of the table with this caption, the head first."""
        return self.run(f"""[...document.querySelectorAll("table")]
            .filter((table) => table.caption?.textContent === {json.dumps(caption)})
            .flatMap((table) => [...table.rows])
            .map((row) => [...row.cells].map((cell) => cell.textContent))""")

    @property
    def complaints(self):
        """Errors and warnings of the console, and of the page's scripts."""
        found = [event["params"] for event in self.events
                 if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
                 or (event["method"] == "Runtime.consoleAPICalled"
                     and event["params"]["type"] in ("error", "warning", "assert"))]  # fmt: skip
        return [json.dumps(each)[:500] for each in found]

    @property
    def requested(self):
        """Addresses that the page asked for beyond its own file."""
        asked = [event["params"]["request"]["url"] for event in self.events
                 if event["method"] == "Network.requestWillBeSent"]  # fmt: skip
        return [url for url in asked if not url.startswith(("data:", "blob:"))][1:]
