# SPDX-License-Identifier: GPL-2.0-or-later
"""Fault rules in tc-netem's words."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.faults.model import FaultRule, LinkImpairments
from softroce_lab.faults.resolve import lower
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse
from softroce_lab.plan.effects import Window


def read(effects: str) -> FaultRule:
    return validate(FaultRule, parse(f"name: x\nlinks: a->b\n{effects}\n", "x.yaml"))


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        ("loss: state 1%", "3:7: 'state' is not supported yet"),
        ("loss: rndom 1%", "3:7: unknown key 'rndom'\n  hint: did you mean 'random'?"),
        ("loss: random", "3:7: '' is not a percentage"),
        ("loss: {random: 150%}", "3:16: percentage '150%' is above 100%"),
        ("loss: {random: 0.01}", "3:16: percentage '0.01' has no unit"),
        ("loss: {}", "3:7: loss has no model"),
        ("loss: [1%]", "3:7: expected keys and values, found a list"),
        ("loss:", "3:1: 'loss' has no value"),
        ("loss: 1%\nkey: both", "4:6: expected 'identity' or 'index', found 'both'"),
    ],
)
def test_mistakes_are_pointed_at(loss: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(loss)
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize(
    "spellings",
    [
        ("loss: gemodel 1% 25% 90% 0.1%", "loss: {gemodel: 1% 25% 90% 0.1%}",
         "loss: {gemodel: {p: 1%, r: 25%, 1-h: 90%, 1-k: 0.1%}}"),
        ("loss: gemodel 1%", "loss: {gemodel: 1%}", "loss: {gemodel: {p: 1%}}"),
        ("loss: burst 1% 8", "loss: {burst: {rate: 1%, length: 8}}"),
        ("loss: periodic 10 3", "loss: {periodic: {every: 10, length: 3}}"),
        ("loss: periodic 100", "loss: {periodic: 100}", "loss: {periodic: {every: 100}}"),
        ("loss: blackout", "loss: {blackout: true}"),
        ("corrupt: 0.1%", "corrupt: {percent: 0.1%}"),
        ("duplicate: 1%", "duplicate: {percent: 1%}"),
        ("reorder: 1% gap 5 by 100us", "reorder: {percent: 1%, gap: 5, by: 100us}"),
        ("delay: 10ms 2ms distribution normal", "delay: 10ms\njitter: 2ms\ndistribution: normal",
         "delay: {delay: 10ms, jitter: 2ms, distribution: normal}",
         "delay: 10ms jitter 2ms\ndistribution: normal"),
        ("delay: 1ms 2ms reorder allow", "delay: {delay: 1ms, jitter: 2ms, reorder: allow}"),
        ("rate: 200Mbit limit 64KiB ecn 30 trim",
         "rate: 200mbit\nlimit: 64KiB\necn: 30\ntrim: true",
         "rate: {rate: 200Mbit/s, limit: 64KiB, ecn: 30, trim: true}"),
        ("rate: 200Mbit trim 64KiB trim_share 25%", "rate: 200Mbit\ntrim: 64KiB\ntrim_share: 25%",
         "rate: {rate: 200Mbit, trim: 64KiB, trim_share: 25%}"),
        ("rate: 200Mbit trim 30 queue uet", "rate: {rate: 200Mbit, trim: 30, queue: uet}"),
        ("drop: message 3 packet 5,6,7 iter 1", "drop: {message: 3, packet: 5-7, iter: 1}",
         "drop: [{message: 3, packet: [5, 6, 7], iter: [1]}]"),
        ("drop: qpn 1 psn 7 absolute", "drop: {qpn: 1, psn: 7, absolute: true}"),
        ("drop: opcode RC_SEND_ONLY", "drop: opcode 0x04", "drop: {opcode: 0x04}",
         "drop: {opcode: 4}", "drop: {opcode: rc_send_only}"),
        ("drop: only data,control", "drop: {only: [control, data]}"),
        ("drop: tail 1 iter 1-2", "drop: {tail: 1, iter: [1, 2]}"),
        ("drop: [tail 1, qpn 2]", "drop: [{tail: 1}, {qpn: 2}]"),
    ],
)  # fmt: skip
def test_words_and_maps_mean_the_same(spellings: tuple[str, ...]) -> None:
    first, *others = (list(lower(read(text))) for text in spellings)
    for other in others:
        assert [each[:2] for each in other] == [each[:2] for each in first]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # models of loss
        ("loss: {random: 1%, gemodel: 1%}", "3:20: loss gemodel contradicts loss random"),
        ("loss: {blackout: false}", "3:7: loss has no model"),
        ("loss: gemodel", "3:7: key 'p' is missing"),
        ("loss: gemodel 1% 2% 3% 4% 5%", "3:7: unexpected '5%'"),
        ("loss: burst 1% 0", "3:7: length 0 can match nothing"),
        ("loss: {periodic: {every: 3, length: 4}}", "3:29: length 4 is more than every 3"),
        ("loss: {periodic: {every: 3, offset: 3}}", "3:29: offset 3 is not below every 3"),
        ("loss: blackout 1%", "3:7: unexpected '1%' after blackout"),
        ("loss: ecn", "3:7: 'ecn' does not belong here\n  hint: ecn marks at a queue"),
        # the wire
        ("delay: 3601s", "3:8: delay '3601s' is longer than 3600 s"),
        ("delay: 10ms jiter 2ms", "3:8: unexpected 'jiter'\n  hint: did you mean 'jitter'?"),
        ("delay: 10ms distribution normal", "3:1: a distribution needs a jitter"),
        ("delay: 10ms\ndistribution: normal", "4:1: a distribution needs a jitter"),
        ("loss: 1%\njitter: 1ms", "4:1: 'jitter' without a delay"),
        ("delay: 10ms 1ms\njitter: 1ms", "4:1: 'jitter' stands twice, here and in 'delay'"),
        (
            "rate: 200bps",
            "3:7: rate '200bps' has an unknown unit 'bps'\n  hint: bps is bytes to tc "
            "and bits to everyone else: use bit",
        ),
        ("loss: 1%\nlimit: 100", "4:1: 'limit' without a rate"),
        ("rate: 1Gbit limit 10\nlimit: 10", "4:1: 'limit' stands twice, here and in 'rate'"),
        # single packets
        ("corrupt: 1% 2%", "3:10: unexpected '2%'"),
        ("reorder: 1%\ngap: 5", "4:1: 'gap' does not belong here"),
        # keys
        ("key: identity\nloss: gemodel 1%", "3:1: loss gemodel remembers earlier packets"),
        ("key: identity\nreorder: 1% gap 5", "3:1: reorder with a gap remembers earlier"),
        # the rule
        ("down: false", "1:1: the rule has no effect"),
        ("loss: 1%\nnodes: s1", "4:1: 'nodes' beside 'links'"),
        ("only: data\ndelay: 1ms", "3:1: 'only' does not go with 'delay'"),
        ("only: data\ndrop: tail 1 only data", "3:1: 'only' does not go with a drop that says"),
        ("rate: 1Gbit trim 0B", "3:7: size '0B' is nothing at all"),
        ("rate: 1Gbit trim_share 25%", "3:1: 'trim_share' without trim"),
        ("rate: 1Gbit\ntrim_share: 25%", "4:1: 'trim_share' without trim"),
        ("rate: 1Gbit trim trim_share 0%", "3:7: share '0%' lets trimmed frames wait for ever"),
        ("rate: 1Gbit queue red", "3:7: expected 'uet', found 'red'"),
        ("only: data", "3:1: 'only' without anything that happens"),
        # the timeline
        ("loss: 1%\nevery: 1s", "4:1: 'every' needs 'for'"),
        ("loss: 1%\nevery: 1s\nfor: 2s", "5:1: the timeline overlaps itself"),
        ("loss: 1%\nfor: 0s", "4:6: time '0s' is nothing at all"),
    ],
)
def test_every_mistake_is_pointed_at(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize("key", ["at", "for", "every", "key"])
def test_a_link_has_no_timeline_of_its_own(key: str) -> None:
    with pytest.raises(UserError, match=f"^x.yaml:1:1: '{key}' does not belong here") as caught:
        validate(LinkImpairments, parse(f"{key}: 1s", "x.yaml"))
    assert caught.value.hint == "it belongs to a rule under faults"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("", Window()),
        ("at: 2s", Window(2 * 10**9)),
        ("for: 50ms", Window(0, 50 * 10**6)),
        ("at: 2s\nfor: 50ms\nevery: 1s", Window(2 * 10**9, 50 * 10**6, 10**9)),
        ("for: 1s\nevery: 1s", Window(0, 10**9, 10**9)),
    ],
)
def test_timelines(text: str, window: Window) -> None:
    assert read(f"loss: 1%\n{text}").window == window
