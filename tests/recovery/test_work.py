# SPDX-License-Identifier: GPL-2.0-or-later
"""What is remembered of work with a peer: ids that wrap, slots that are used again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.errors import ibv_wc_status
from softroce_lab.recovery.work import PeerWork, Receiving, Sending, is_newer

IDS = 2**32
SUCCESS = ibv_wc_status.IBV_WC_SUCCESS
RETRY = ibv_wc_status.IBV_WC_RETRY_EXC_ERR
KEY, OTHER = (1, 2, 3), (1, 2, 4)


def work(slots=4):
    return PeerWork(0, slots)


def sending(id_, key=KEY, handle=0):
    return Sending(handle, 0, id_, key, 10)


def receiving(handle, key=KEY):
    return Receiving(handle, 0, key, 10)


# ---------------------------------------------------------------- ids


@given(st.integers(0, IDS - 1), st.integers(1, IDS // 2 - 1))
def test_newer_is_what_was_given_later_across_the_wrap(id_, later):
    newer = (id_ + later) % IDS
    assert is_newer(newer, id_)
    assert not is_newer(id_, newer)
    assert not is_newer(id_, id_)


@given(st.integers(0, IDS - 1), st.integers(0, 1000))
def test_what_was_sent_is_what_is_not_newer_than_the_newest(first, count):
    done = work()
    assert not done.was_sent(first)
    for n in range(count + 1):
        done.newest_id = (first + n) % IDS
    assert done.was_sent(first)
    assert done.was_sent((first + count) % IDS)
    assert not done.was_sent((first + count + 1) % IDS)


# ---------------------------------------------------------------- outcomes


@given(st.integers(0, IDS - 1), st.sampled_from([1, 2, 64]), st.integers(1, 300))
def test_an_outcome_is_that_of_the_newest_of_its_slot(first, slots, count):
    """Of messages that end in order, with every third in error, each slot knows its last."""
    done = work(slots)
    ended = {}
    for n in range(count):
        id_ = (first + n) % IDS
        ended[id_] = RETRY if n % 3 == 0 else SUCCESS
        assert done.outcome(id_) is None
        done.end(id_, ended[id_])
    for id_ in list(ended)[-slots:]:
        assert done.outcome(id_) == ended[id_]
    for id_ in list(ended)[:-slots]:
        assert done.outcome(id_) is not None, "an older one of the slot is over"
    assert done.outcome((first + count) % IDS) is None
    assert len(done.outcomes) <= slots


@pytest.mark.parametrize("newest", [4, 0, 2])
def test_an_older_outcome_does_not_replace_a_newer_one(newest):
    done = work(4)
    done.end(newest, SUCCESS)
    done.end((newest - 4) % IDS, RETRY)
    assert done.outcome(newest) == SUCCESS
    assert done.outcome((newest + 4) % IDS) is None


# ---------------------------------------------------------------- sends


def test_a_key_that_is_used_again_names_the_newer_send():
    """The older one may be forgotten after that, and takes nothing with it."""
    some = work()
    first, second = sending(1), sending(2)
    some.add_send(first)
    some.add_send(second)
    some.forget_send(first)
    assert some.sends == {2: second}
    assert some.sends_by_key[KEY] is second
    some.forget_send(second)
    assert not some.sends
    assert not some.sends_by_key
    assert not some.busy()


# ---------------------------------------------------------------- receives


def test_a_receive_is_named_by_its_key_and_then_by_the_messages_id():
    some = work()
    receive = receiving(7)
    some.add_receive(receive)
    assert some.receive_of(99, KEY) is receive, "no packet has told an id yet"
    some.open(receive, 5, 3)
    assert (receive.id, receive.count) == (5, 3)
    assert some.receive_of(5, KEY) is receive
    assert some.receive_of(5, OTHER) is None
    assert some.receive_of(6, KEY) is None
    some.forget_receive(7)
    assert some.receive_of(5, KEY) is None
    assert not some.busy()
    some.forget_receive(7)  # again: nothing


def test_the_next_receive_of_a_key_stands_beside_the_one_that_is_open():
    some = work()
    begun, waiting = receiving(7), receiving(8)
    some.add_receive(begun)
    some.open(begun, 5, 3)
    some.add_receive(waiting)
    assert some.receive_of(5, KEY) is begun
    assert some.receive_of(6, KEY) is waiting
    some.forget_receive(7)
    assert some.receive_of(6, KEY) is waiting
    assert some.busy()


def test_forgetting_an_older_receive_spares_the_newer_one_of_its_id():
    some = work()
    old, new = receiving(7), receiving(8)
    for receive in (old, new):
        some.add_receive(receive)
        some.open(receive, 5, 3)
    some.forget_receive(7)
    assert some.receive_of(5, KEY) is new


# ---------------------------------------------------------------- what others may make us remember


def test_memory_for_what_a_peer_says_is_bounded():
    some = work()
    for n in range(10_000):
        some.remember_rnr((0, 0, n), n)
        some.remember_refused(n)
    assert list(some.rnr_sent.values()) == list(some.refused) == list(range(10_000 - 4096, 10_000))
