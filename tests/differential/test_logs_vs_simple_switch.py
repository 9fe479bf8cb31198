"""innet simple-switch beside a simple_switch with logging macros: the same lines."""

from __future__ import annotations

import collections
import re
import sys

import pytest
from support import switch_logs

pytest.importorskip("thrift", reason="Thrift's library is not installed")
pytestmark = pytest.mark.skipif(
    switch_logs.logging_switch() is None, reason="simple_switch_logging is not on PATH"
)

# Lines about something that is not done here, or not at the same time.
OTHERS = re.compile(
    r". (Pcap reader|Adding interface|The interpreter runs|No notifications|Starting)"
)


@pytest.mark.parametrize("name", ["fuzz_counters", "fuzz_multicast", "fuzz_profiles"])
def test_calls_and_packets_are_logged_as_simple_switch_logs_them(name, tmp_path):
    document, rounds = switch_logs.cases()[name]
    logs = [
        switch_logs.of_process(words, document, rounds, tmp_path / str(number))
        for number, words in enumerate(
            (
                [switch_logs.logging_switch()],
                [sys.executable, "-m", "innet.simple_switch.process"],
            )
        )
    ]
    (wanted, other), (found, mine) = map(switch_logs.by_packet, logs)
    assert found == wanted
    # Of refusals simple_switch tells more; what is told here is told there.
    told, expected = (
        collections.Counter(line for line in lines if not OTHERS.match(line))
        for lines in (mine, other)
    )
    assert not told - expected
    missing = expected - told
    assert not [line for line in missing if not line.startswith("E ")], missing
