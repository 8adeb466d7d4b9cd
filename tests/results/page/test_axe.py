# SPDX-License-Identifier: GPL-2.0-or-later
"""Accessibility of a page, judged by axe-core in a real browser: no violation of its rules.

axe-core is in a wheel of PyPI, which is fetched for the test, and is no part of the lab.
"""

import json
import subprocess
import sys
import zipfile

import pytest

from softroce_lab.results.page import assemble, html
from softroce_lab.results.recorded import Recorded
from tests.results.page.browser import Page, chromium
from tests.results.page.test_assemble import swept  # noqa: F401 - a fixture

WHEEL = "axe-playwright-python==0.1.8"  # of axe-core 4
WAIT_MS = 2500  # until the charts are drawn

HOOK = """<script>%s</script><script>
window.addEventListener("load", () => setTimeout(() => axe.run(document).then((found) => {
  const result = document.createElement("pre");
  result.id = "axe";
  result.textContent = JSON.stringify({
    passes: found.passes.length,
    violations: found.violations.map((each) => [
      each.id, each.nodes.map((node) => node.html.slice(0, 200)),
    ]),
  });
  document.body.append(result);
}), %d));
</script></body>"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """Its script, as text."""
    chromium()
    folder = tmp_path_factory.mktemp("axe")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"{WHEEL} cannot be fetched: {done.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("axe.min.js"))
        return archive.read(name).decode().replace("</script", "<\\/script")


def judged(text, axe, folder):
    """What axe-core finds in a page after its scripts."""
    (folder / "page.html").write_text(text.replace("</body>", HOOK % (axe, WAIT_MS)))
    page = Page(folder / "page.html", folder)
    return json.loads(page.elements.ids["axe"])


def test_a_run(ring_run, axe, tmp_path):
    found = judged(assemble.page(Recorded(ring_run)), axe, tmp_path)
    assert found["violations"] == []
    assert found["passes"] > 20


def test_a_sweep(swept, axe, tmp_path):  # noqa: F811
    found = judged(assemble.page(Recorded(swept)), axe, tmp_path)
    assert found["violations"] == []
    assert found["passes"] > 20


def test_a_violation_is_found(ring_run, axe, tmp_path):
    """The same page with an image without a text, and one without enough contrast."""
    wrong = '<img src="data:,"><p style="color:#eee;background:#fff">hardly to be read</p>'
    text = assemble.page(Recorded(ring_run), html.section("wrong", "Wrong", wrong))
    found = judged(text, axe, tmp_path)
    assert {"image-alt", "color-contrast"} <= {name for name, _ in found["violations"]}
