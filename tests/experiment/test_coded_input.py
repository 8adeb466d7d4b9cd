# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input of coded transports: a clear error with file, line and column, before anything runs."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.inputs import yaml_source

TEXT = """\
name: coded
topology: {generator: {kind: star, hosts: 2}}
mtu: 4300
transports:
  - {name: %s, options: {%s}}
workload: {kind: point-to-point, bytes: 64KiB}
"""


def refusal(text):
    with pytest.raises(UserError) as raised:
        spec.of(yaml_source.parse(text, "file.yaml"))
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "column", "what"),
    [
        ("k: 0", 33, "option 'k'"),
        ("m: 0", 33, "option 'm'"),
        ("k: 256", 33, "option 'k'"),
        ("k: 255, m: 2", 41, "option 'm': k + m is 257, more than 256"),
        ("k: 200, m: 100", 41, "with k = 200: at most 56"),
        ("code: xor, k: 4, m: 5", 50, "5 chunks of parity for k = 4 chunks of data"),
        ("code: raptor", 36, "option 'code'"),
        ("chunk: 5000 B", 37, "5000 bytes are no multiple of the path MTU, 4096 bytes"),
        ("chunk: 100 B", 37, "option 'chunk'"),
        ("chunk: 8 MiB", 37, "option 'chunk'"),
        ("beta: -1", 36, "option 'beta'"),
        ("beta: 101", 36, "option 'beta'"),
    ],
)
def test_a_code_that_there_is_none_of(options, column, what):
    error = refusal(TEXT % ("sdr_ec", options))
    assert what in error
    assert f"file.yaml:5:{column}" in error


@pytest.mark.parametrize("options", ["k: 16", "code: mds", "m: 4"])
def test_sdr_auto_chooses_the_code_itself(options):
    assert "file.yaml:5:" in refusal(TEXT % ("sdr_auto", options))


@pytest.mark.parametrize("transport", ["sdr_ec", "sdr_sr"])
def test_a_message_larger_than_its_slot(transport):
    """2^18 packets, parity included: 1 GiB fits a slot of 4096 bytes a packet without parity."""
    text = (TEXT % (transport, "")).replace("64KiB", "%s, message: %s")
    fits, too_large = ("800MiB", "1GiB") if transport == "sdr_ec" else ("1GiB", "1025MiB")
    assert spec.of(yaml_source.parse(text % (fits, fits), "file.yaml"))
    error = refusal(text % (too_large, too_large))
    assert "file.yaml:6:" in error
    assert f"messages of {transport} have" in error
    assert "at most" in error
