"""Settings of networks in simulated time."""

from __future__ import annotations

import math

import pytest

import innet
from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.sim import PRESETS, Network, network_of


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"rate": 0}, "rate is 0; give bits per second, from 1e3"),
        ({"rate": math.nan}, "rate is nan"),
        ({"trunk_rate": -1.0}, "trunk_rate is -1.0; give bits per second"),
        ({"delay": 1e-13}, "delay is 1e-13 s, below the clock's resolution of a picosecond"),
        ({"delay": -1e-6}, "delay is -1e-06; give seconds"),
        ({"switch_latency": math.inf}, "switch_latency is inf; give seconds"),
        ({"loss": 1.0}, "loss is 1.0; give a probability, 0 or more and below 1"),
        ({"queue_packets": 0}, "queue_packets is 0; a queue holds at least 1 packet"),
        ({"queue_packets": 2.5}, r"queue_packets is 2\.5"),
        ({"host_cores": 0}, "host_cores is 0; give 1 to 1024"),
        ({"host_pace": 0}, "host_pace is 0; give bits per second, from 1e3"),
        ({"host_jitter": -1e-6}, "host_jitter is -1e-06; give seconds"),
        ({"host_byte": 1e-2}, r"host_byte is 0\.01; give seconds, from 0 to 0\.001"),
        ({"timestamp_unit": "ms"}, "timestamp_unit is 'ms'; give us or ns"),
        ({"priorities": 9}, "priorities is 9; give 1 to 8 queues of a port"),
    ],
)
def test_numbers_that_no_network_has_are_refused_by_name(settings, why):
    with pytest.raises(InputError, match=why):
        Network(**settings)


def test_a_priority_without_a_queue_is_refused_with_the_remedy():
    Network(priorities=4).check_priority(3)
    with pytest.raises(InputError, match=r"priority 3, but .* 2 egress queues; .*priorities=4"):
        Network(priorities=2).check_priority(3)


def test_presets_and_what_is_added_to_them():
    assert network_of("100g") == PRESETS["100g"]
    assert network_of("10g:loss=1e-4,delay=2e-6") == Network(rate=10e9, loss=1e-4, delay=2e-6)
    assert network_of({"rate": 5e9}) == Network(rate=5e9)
    assert network_of(Network(rate=5e9)).slowest == 5e9
    with pytest.raises(UnknownNameError, match=r"unknown network '100'.*100g"):
        network_of("100")
    with pytest.raises(UnknownNameError, match=r"unknown setting of a network 'delays'.*delay"):
        network_of("100g:delays=1")


@pytest.mark.parametrize("given", [5, None, ["100g"]])
def test_what_names_no_network_is_refused(given):
    with pytest.raises(InputError, match="give a preset such as '100g'"):
        network_of(given)


def test_a_file_of_settings(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "25g"\nqueue_packets = 64\n')
    assert network_of(file) == network_of(str(file)) == Network(rate=25e9, queue_packets=64)
    file.write_text("preset = [1]\n")
    with pytest.raises(UnknownNameError, match=r"unknown network '\[1\]'"):
        network_of(file)
    file.write_text('preset = "25"\n')
    with pytest.raises(UnknownNameError, match="unknown network '25'"):
        network_of(file)
    file.write_text("rate = 0\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: rate is 0"):
        network_of(file)
    file.write_text("rate = = 1")
    with pytest.raises(ConfigError, match=r"mine\.toml is no valid TOML"):
        network_of(file)
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        network_of(tmp_path / "none.toml")


def test_hosts_are_presets_of_what_packets_cost():
    rdma = network_of("100g:host=rdma")
    assert (rdma.host_receive, rdma.host_cores) == (5e-9, 1)
    assert network_of({"host": "dpdk"}) == Network()
    mine = network_of("10g:host=kernel-udp,host_byte=0")
    assert (mine.host_send, mine.host_byte) == (2.7e-6, 0)
    with pytest.raises(UnknownNameError, match=r"unknown host 'tcp'.*dpdk"):
        network_of("10g:host=tcp")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"network": "100g:queue=5"},
            "of a network 'queue'. Did you mean 'queue_bytes'",
        ),
        ({"network": "100g:rate=0"}, "rate is 0; give bits per second"),
        ({"network": "100g:queue_bytes=100"}, "queue_bytes is 100, but a packet has 330 bytes"),
        ({"network": "100g:buffer_bytes=100"}, "buffer_bytes is 100, but a packet has"),
        ({"network": "100g:delay=1e-13"}, "below the clock's resolution of a picosecond"),
        ({"network": "100g", "topology": "fat-tree", "ports": 2, "workers": 9}, "ports"),
        ({"network": "100g", "workers": 33, "topology": "star"}, "32"),
        ({"network": "100g", "networks": 1}, "networks"),
    ],
)
def test_simulations_refuse_settings_by_name_and_remedy(settings, said):
    with pytest.raises(InputError, match=said):
        innet.simulate(size=10, **settings)
