# SPDX-License-Identifier: GPL-2.0-or-later
"""Random work that may fail: small bounds, keys used again, receives too short, late or missing.

Whatever happens, all of it ends, in silence; a send that succeeded filled a receive, and a receive
that succeeded holds a message of its key; nothing else in memory has changed.
"""

import collections
import dataclasses
import random

import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests.transports.pair_rig import MILLISECOND_NS, SECOND_NS, PairRig, noise, threshold
from tests.transports.schedule import TRANSPORTS

BLOCKS, SHORT, FULL = 4, 400, 40_000
LATEST_NS = 300 * MILLISECOND_NS
SUCCESS = ibv_wc_status.IBV_WC_SUCCESS


@dataclasses.dataclass(frozen=True)
class Request:
    is_send: bool
    key: tuple[int, int, int]
    length: int
    at_ns: int


def make_rig(rng, seed):
    timing = dataclasses.replace(
        DEFAULT_TIMING, most_attempts=rng.choice((2, 3, 5, 200)), rnr_retry=rng.choice((0, 1, 3, 6))
    )
    rig = PairRig(
        TRANSPORTS[seed % 2],
        seed=seed,
        timing=timing,
        message_slots=rng.choice((1, 2, 4)),
        path_mtu=512,
        paths=rng.randint(1, 8),
        window_packets=rng.choice((1, 4, 64)),
        first_message_id=rng.choice((0, 2**32 - 2, 2**31 - 2)),
    )
    for cable in rig.cables:
        cable.delay_ns = rng.choice((1_000, 100_000, 5_000_000))
        cable.jitter_ns = rng.choice((0, 300_000, 20_000_000, 200_000_000))
        cable.packet_time_ns = rng.choice((0, 3_000, 100_000))
        cable.loss = threshold(rng.choice((0, 0.1, 0.3, 0.5)))
        cable.duplicate = threshold(rng.choice((0, 0.2)))
    return rig


def make_requests(rng):
    keys = [(0, 0, number) for number in range(rng.choice((1, 2, 4)))]
    requests = []
    for _ in range(rng.randint(3, 14)):
        key, length = rng.choice(keys), rng.choice((0, 1, 472, 3_000, 9_000))
        requests.append(Request(True, key, length, rng.randint(0, LATEST_NS)))
        if rng.random() < 0.85:
            capacity = rng.choice((length, length, length, 9_000, max(length - 1, 0)))
            requests.append(Request(False, key, capacity, rng.randint(0, LATEST_NS)))
    return sorted(requests, key=lambda request: request.at_ns)


def may_be_posted(rig, request):
    """A key names one send at a time, and one receive that has not begun."""
    side = rig.sides[0 if request.is_send else 1]
    if not request.is_send:
        return not side.endpoint.awaits(side.peer, request.key)
    under_way = side.keys_under_way()
    return request.key not in under_way and len(under_way) < side.endpoint.message_slots


def post_all(rig, rng, requests):
    """Post what can be before time is up; the bytes of each send, by its wr_id."""
    sent, end_ns = {}, 1_500 * MILLISECOND_NS
    down_ns = rng.choice((None, None, 50 * MILLISECOND_NS))
    up_ns = 50 * MILLISECOND_NS + rng.choice((100, 1_300)) * MILLISECOND_NS
    waiting = list(requests)
    while rig.now_ns < end_ns and (waiting or down_ns is not None):
        for cable in rig.cables:
            cable.down = down_ns is not None and down_ns <= rig.now_ns < up_ns
        if down_ns is not None and rig.now_ns >= up_ns:
            down_ns = None
        due = (each for each in waiting if each.at_ns <= rig.now_ns and may_be_posted(rig, each))
        request = next(due, None)
        if request is not None:
            waiting.remove(request)
            if request.is_send:
                data = noise(rng.randrange(1_000), request.length)
                sent[rig.sides[0].send(request.key, data).wr_id] = data
            else:
                rig.sides[1].receive(request.key, request.length)
        times = [each.at_ns for each in waiting if each.at_ns > rig.now_ns]
        times += [at for at in (down_ns, up_ns) if at is not None and at > rig.now_ns]
        rig.step(min(times, default=end_ns))
    for cable in rig.cables:
        cable.down = False
    return sent


def check(rig, sent):
    """Every send has ended once, and what has arrived is what was sent."""
    sender, receiver = rig.sides
    assert sorted(each.wr_id for each in sender.completions) == list(range(len(sender.posted)))
    waiting = receiver.keys_under_way()
    assert len(set(waiting)) == len(waiting), "a receive that began hangs"
    assert all(receiver.endpoint.awaits(receiver.peer, key) for key in waiting), "likewise"
    succeeded = collections.Counter(
        each.key for each in sender.completions if each.status == SUCCESS
    )
    for completion in receiver.completions:
        receive = receiver.posted[completion.wr_id]
        span = slice(receive.offset, receive.offset + receive.length)
        if completion.status == SUCCESS:
            got = receiver.arena[span][: completion.byte_len].tobytes()
            names = [
                sender.posted[wr_id].key for wr_id, data in sent.items() if data.tobytes() == got
            ]
            assert receive.key in names, "bytes that nobody sent under this key"
            succeeded[receive.key] -= 1
        receiver.expected[span] = receiver.arena[span]
    assert all(count <= 0 for count in succeeded.values()), "a send succeeded, its receive did not"
    assert (receiver.arena == receiver.expected).all(), "memory of no ended receive has changed"


def run(seed):
    rng = random.Random(seed)
    rig = make_rig(rng, seed)
    sent = post_all(rig, rng, make_requests(rng))
    limit_ns = rig.now_ns + 30 * SECOND_NS
    assert rig.step_until(limit_ns, lambda: not rig.sides[0].outstanding), "sends hang"
    rig.step_until(rig.now_ns + 5 * SECOND_NS)
    check(rig, sent)
    return rig


@pytest.mark.full("failures")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_work_ends_and_what_succeeded_did(block, full):
    """Forty thousand random cases of work that may fail; all ends, and nothing lies."""
    each = (FULL if full else SHORT) // BLOCKS
    for seed in range(block * each, (block + 1) * each):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_cases_have_every_ending():
    met = collections.Counter()
    for seed in range(60):
        for which, side in enumerate(run(seed).sides):
            met.update((which, status.name) for status in side.statuses())
    retry, rnr_naks, too_long = (
        f"IBV_WC_{name}_ERR" for name in ("RETRY_EXC", "RNR_RETRY_EXC", "REM_INV_REQ")
    )
    endings = {(0, SUCCESS.name), (0, retry), (0, rnr_naks), (0, too_long)}
    assert set(met) == endings | {(1, SUCCESS.name), (1, retry)}
