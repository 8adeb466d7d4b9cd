# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's Chromium, without a window and without a network: what a page becomes in it."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

_ITS_OWN = re.compile(r"^https?://[a-z0-9.-]*\.(google|googleapis|gvt1)\.com/")  # the browser's
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_INSTALL = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "chromium"]


def chromium():
    """Its path; it is installed where that is possible, else the test is skipped."""
    found = shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (_INSTALL, ["apt-get", "-q", "update"], _INSTALL):
            subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
            if found := shutil.which("chromium"):
                break
    if found is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    return found


class Page:
    """A page after its scripts: elements with their text, console, and what was requested."""

    def __init__(self, path, folder, *, width=1280, height=2000):
        log, self.screenshot = folder / "net.json", folder / f"page-{width}.png"
        argv = [
            chromium(), *ARGUMENTS,
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=8000",
            f"--window-size={width},{height}", "--enable-logging=stderr",
            f"--log-net-log={log}",
        ]  # fmt: skip
        done = subprocess.run(
            [*argv, "--dump-dom", path.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        self.dom = done.stdout
        self.console = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line]
        self.elements = _Elements()
        self.elements.feed(self.dom)
        self.requested = _requested(log)

    @property
    def errors(self):
        """Lines of the console that are no information."""
        return [line for line in self.console if ":INFO:CONSOLE:" not in line
                or "Refused" in line or "Error" in line]  # fmt: skip

    def rows(self, caption):
        """The cells of the table with this caption."""
        return self.elements.tables[caption]


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables, self.ids, self.attributes = {}, {}, []
        self._caption = self._rows = self._text = self._id = None

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.attributes.append((tag, found))
        if "id" in found:
            self._id = found["id"]
            self.ids[self._id] = ""
        if tag == "table":
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        if tag in ("td", "th", "caption"):
            self._text = ""

    def handle_data(self, data):
        if self._text is not None:
            self._text += data
        if self._id is not None:
            self.ids[self._id] += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self._caption, self._text = self._text, None
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append(self._text)
            self._text = None
        elif tag == "table":
            self.tables[self._caption] = self._rows
            self._rows = None


def _requested(log):
    """Addresses of the network that were asked for."""
    document = json.loads(log.read_text())
    urls = (event.get("params", {}).get("url", "") for event in document["events"])
    asked = {url for url in urls if url.startswith(("http:", "https:", "ws:", "wss:"))}
    return sorted(url for url in asked if not _ITS_OWN.search(url))
