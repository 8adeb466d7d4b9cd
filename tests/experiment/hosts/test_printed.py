# SPDX-License-Identifier: GPL-2.0-or-later
"""The end of a command's output, and the search in it."""

import os
import time

from softroce_lab.experiment.hosts.commands import KEPT_BYTES, Found, Printed, search


def test_the_end_is_kept_in_bounded_memory():
    printed = Printed()
    written = "".join(f"{number}\n" * 2000 for number in range(10, 90))
    for begin in range(0, len(written), 10_000):
        os.write(printed.writer, written[begin : begin + 10_000].encode())
        printed.read()
        assert len(printed.text) <= KEPT_BYTES
    os.write(printed.writer, b"the end")
    printed.close()
    assert printed.text == (written + "the end")[-KEPT_BYTES:]


def test_lines_of_a_search():
    text = "one\ntwo \N{SNOWMAN}\n"
    assert search("^two .$", text) == Found(has=True, line="two \N{SNOWMAN}")
    assert search("one$.^two", text) == Found(has=False)
    assert search("(?s)one$.^two", text) == Found(has=True, line="one")


def test_a_search_ends_in_time():
    begun_s = time.monotonic()
    assert search("(a+)+$", "a" * 60 + "b", limit_s=0.3) == Found(has=None)
    assert time.monotonic() - begun_s < 60  # it would take longer than anybody lives
