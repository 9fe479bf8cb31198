"""Mastership by election id and role, without I/O."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from innet.p4runtime.arbitration import MOST_CONTROLLERS, Arbitration, Controller
from innet.p4runtime.messages import p4
from innet.p4runtime.status import Code, StatusError


def update(election_id=None, device_id=3, role=""):
    made = p4.MasterArbitrationUpdate(device_id=device_id)
    if election_id is not None:
        made.election_id.high, made.election_id.low = election_id >> 64, election_id % (1 << 64)
    if role:
        made.role.name = role
    return made


def told(notices):
    """(stream, code, election id) of notices."""
    return [
        (each.stream, Code(m.status.code), m.election_id.high << 64 | m.election_id.low)
        for each, m in notices
    ]


@pytest.fixture
def arbitration():
    return Arbitration(3)


def code(call, *arguments):
    with pytest.raises(StatusError) as error:
        call(*arguments)
    return error.value.code


def test_the_highest_id_is_primary_and_others_are_told_first(arbitration):
    a, b = Controller("a"), Controller("b")
    assert told(arbitration.update(a, update(5))) == [("a", Code.OK, 5)]
    assert told(arbitration.update(b, update(4))) == [("b", Code.ALREADY_EXISTS, 5)]
    assert told(arbitration.update(b, update(1 << 70))) == [
        ("a", Code.ALREADY_EXISTS, 1 << 70),
        ("b", Code.OK, 1 << 70),
    ]


def test_a_primary_steps_down_or_leaves(arbitration):
    a, b = Controller("a"), Controller("b")
    arbitration.update(a, update(5))
    arbitration.update(b, update(4))
    assert told(arbitration.update(a, update(3))) == [
        ("b", Code.NOT_FOUND, 5),
        ("a", Code.NOT_FOUND, 5),
    ]
    # 4 is below the highest that was seen.
    assert told(arbitration.update(b, update(4))) == [("b", Code.NOT_FOUND, 5)]
    assert told(arbitration.update(b, update(5)))[-1] == ("b", Code.OK, 5)
    assert told(arbitration.leave(b)) == [("a", Code.NOT_FOUND, 5)]
    assert arbitration.leave(Controller("never came")) == []


def test_without_an_id_nobody_is_primary(arbitration):
    a = Controller("a")
    (notice,) = arbitration.update(a, update())
    assert notice[1].status.code == Code.NOT_FOUND
    assert not notice[1].HasField("election_id")
    assert told(arbitration.update(a, update(0))) == [("a", Code.OK, 0)]


def test_what_ends_a_stream(arbitration):
    a, b = Controller("a"), Controller("b")
    assert code(arbitration.update, a, update(1, device_id=4)) is Code.NOT_FOUND
    arbitration.update(a, update(1))
    assert code(arbitration.update, b, update(1)) is Code.INVALID_ARGUMENT
    assert code(arbitration.update, a, update(1, device_id=4)) is Code.FAILED_PRECONDITION
    assert code(arbitration.update, a, update(1, role="x")) is Code.FAILED_PRECONDITION
    with_config = update(2)
    with_config.role.config.type_url = "x"
    assert code(arbitration.update, a, with_config) is Code.INVALID_ARGUMENT
    for number in range(MOST_CONTROLLERS - 1):
        arbitration.update(Controller(number), update(100 + number))
    assert code(arbitration.update, b, update(9)) is Code.RESOURCE_EXHAUSTED


def test_a_stream_that_ends_makes_room(arbitration):
    all_of_them = [Controller(number) for number in range(MOST_CONTROLLERS)]
    for number, each in enumerate(all_of_them):
        (*_, last) = told(arbitration.update(each, update(1000 - number)))
        assert last == (number, Code.ALREADY_EXISTS if number else Code.OK, 1000)
    late = Controller("late")
    assert code(arbitration.update, late, update(1)) is Code.RESOURCE_EXHAUSTED
    assert arbitration.leave(late) == []
    arbitration.leave(all_of_them.pop())
    assert told(arbitration.update(late, update(1))) == [("late", Code.ALREADY_EXISTS, 1000)]


def test_a_write_without_an_election_id_is_no_primarys(arbitration):
    request = p4.WriteRequest(device_id=3)
    assert code(arbitration.require_primary, request) is Code.PERMISSION_DENIED
    arbitration.update(Controller("a"), update(1))
    assert code(arbitration.require_primary, request) is Code.PERMISSION_DENIED


def test_roles_are_apart(arbitration):
    a, b = Controller("a"), Controller("b")
    arbitration.update(a, update(5))
    assert told(arbitration.update(b, update(5, role="acl"))) == [("b", Code.OK, 5)]
    request = p4.WriteRequest(device_id=3, role="acl")
    request.election_id.low = 5
    arbitration.require_primary(request)
    request.role = "other"
    assert code(arbitration.require_primary, request) is Code.NOT_FOUND
    request.role, request.election_id.low = "acl", 4
    assert code(arbitration.require_primary, request) is Code.PERMISSION_DENIED
    request.device_id = 1
    assert code(arbitration.require_primary, request) is Code.NOT_FOUND


def test_random_streams_keep_the_rules(arbitration):
    draw = random.Random(3)
    live, highest, primary = {}, -1, None
    for step in range(2000):
        if live and draw.random() < 0.3:
            each = draw.choice(list(live))
            arbitration.leave(each)
            del live[each]
            primary = None if primary is each else primary
        else:
            each = draw.choice([*live, Controller(step)]) if len(live) < 16 else next(iter(live))
            number = draw.randrange(highest + 3)
            if any(other is not each and number == had for other, had in live.items()):
                assert code(arbitration.update, each, update(number)) is Code.INVALID_ARGUMENT
                continue
            notices = arbitration.update(each, update(number))
            live[each] = number
            if number >= highest:
                highest, primary = number, each
            elif primary is each:
                primary = None
            assert [c for c, m in notices if m.status.code == Code.OK] == (
                [primary] if primary in [c for c, _ in notices] else []
            )
        assert arbitration.primaries() == ([primary] if primary else [])
