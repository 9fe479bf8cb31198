"""Fat-trees, dumbbells with two jobs, deeper trees, and links with a delay, on Mininet networks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from support.mininet import EITHER_KIND, KINDS, missing, needs_mininet

import innet
from innet.cli import app
from innet.core.errors import ConfigError, InnetError, InputError, NetworkError
from innet.core.settings import load_toml

if not missing():
    from innet.mininet import allreduce
    from innet.mininet.debian import Topo
    from innet.mininet.doctor import has_feature
    from innet.mininet.network import network
    from innet.mininet.nodes import BuiltinSwitch, P4Host
    from innet.mininet.settings import NetSettings
    from innet.mininet.topologies import Links, PlanTopo

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]


smaller = pytest.mark.repeats("the same on a smaller network of two levels")


def settings(**chosen):
    return NetSettings(
        **{"workers": 4, "size": 8000, "seed": 5, "program": "tree", "window": 64, **chosen}
    )


def hold_to_memory(chosen, results):
    for job, result in enumerate(results, start=1):
        given = chosen.of_job(job).gradients()
        total, report = innet.all_reduce(
            given, codec=chosen.codec, program=chosen.program, racks=2, seed=chosen.seed
        )
        np.testing.assert_array_equal(result.sum, total)
        assert result.report.exact
        assert result.report.max_abs_error == report.max_abs_error


@smaller
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "codec"),
    [
        pytest.param({"workers": 4, "topology": "fat-tree", "ports": 4}, "dense", id="fat-tree"),
        pytest.param({"workers": 3, "racks": 3, "depth": 3}, "lhc", id="three levels"),
    ],
)
def test_three_levels_are_equal_to_memory_under_loss(kind, shape, codec):
    density = 1.0 if codec == "dense" else 0.02
    chosen = settings(
        switch=kind, codec=codec, density=density, loss=0.02, timeout=0.05, give_up=60.0, **shape
    )
    (result,) = results = allreduce.run_jobs(chosen)
    hold_to_memory(chosen, results)
    assert result.report.retransmissions > 0


@smaller
@pytest.mark.parametrize("kind", KINDS)
def test_more_workers_than_a_switch_names(kind):
    chosen = settings(workers=40, switch=kind, size=3000, give_up=90.0)
    assert len(chosen.plan().switches) == 3
    results = allreduce.run_jobs(chosen)
    hold_to_memory(chosen, results)


def test_a_host_knows_as_many_neighbors_as_it_is_given(tmp_path):
    # More than fit a line of its shell's terminal.
    neighbors = {f"10.0.1.{i}": f"02:00:00:00:01:{i:02x}" for i in range(1, 201)}
    topo = Topo()
    topo.addHost("h1", cls=P4Host, ip="10.0.0.1/16", neighbors=neighbors)
    forward = Path(__file__).parents[2] / "p4/examples/forward.json"
    topo.addSwitch("s1", cls=BuiltinSwitch, program=forward, folder=tmp_path)
    topo.addLink("h1", "s1")
    with network(topo) as net:
        known = net.hosts[0].cmd("ip neigh show nud permanent")
    assert known.count("lladdr 02:00:00:00:01:") == 200
    wrong = Topo()
    wrong.addHost("h1", cls=P4Host, ip="10.0.0.1/16", neighbors={"10.0.0.999": "02:00:00:00:00:01"})
    wrong.addSwitch("s1", cls=BuiltinSwitch, program=forward, folder=tmp_path)
    wrong.addLink("h1", "s1")
    with pytest.raises(NetworkError, match="neighbors of h1-eth0 cannot be set"), network(wrong):
        pass


def test_a_worker_knows_its_switch_alone(tmp_path):
    chosen = settings(workers=4, racks=2)
    topo = chosen.mininet_topo(chosen.shared_plan(), tmp_path)
    plan = chosen.plan()
    for host in plan.hosts:
        assert topo.nodeInfo(host.name)["neighbors"] == {host.peer.ip: host.peer.mac}


@pytest.mark.repeats("two jobs in memory, and one in Mininet")
@pytest.mark.parametrize("kind", EITHER_KIND)
def test_two_jobs_on_a_dumbbell_have_their_own_sums(kind):
    chosen = settings(
        workers=2,
        topology="dumbbell",
        jobs=2,
        switch=kind,
        loss=0.02,
        timeout=0.05,
        rounds=2,
        give_up=60.0,
    )
    results = allreduce.run_jobs(chosen)
    assert len(results) == 2
    assert not np.array_equal(results[0].sum, results[1].sum)
    hold_to_memory(chosen, results)
    assert all(len(each.reports) == 2 for each in results)


def test_a_delay_of_every_link_is_as_long_and_says_who_made_it():
    chosen = settings(workers=2, racks=2, link_delay=20.0, delay_by="workers", size=3000)
    result = allreduce.run(chosen)
    assert result.report.exact
    assert result.report.retransmissions == 0
    # Two links up and two down, in each round of the codec.
    assert result.report.seconds.network > 0.08 * result.report.rounds
    assert result.report.transport.endswith("links of 20 ms by the workers' own faults")


def test_who_makes_a_delay_follows_from_the_kernel(tmp_path):
    chosen = settings(link_delay=3.0).completed()
    by_kernel = has_feature("netem")
    assert chosen.delay_by == ("netem" if by_kernel else "workers")
    assert chosen.limited == by_kernel
    assert chosen.delay == (0.0 if by_kernel else 0.003)
    assert chosen.timeout > settings().timeout + 2 * 2 * 0.003
    netem = settings(link_delay=3.0, delay_by="netem").completed()
    assert netem.limited
    assert netem.links == "links of 3 ms by the kernel's netem"
    topo = netem.mininet_topo(netem.shared_plan(), tmp_path)
    for _, _, options in topo.links(withInfo=True):
        assert options["delay"] == "3ms"
        assert options["max_queue_size"] > 1000


def test_a_delay_in_a_file_of_settings_is_in_milliseconds_as_the_options(tmp_path):
    path = tmp_path / "net.toml"
    path.write_text("delay = 5\n")
    with pytest.raises(ConfigError, match="delay = 5 cannot be used; give link_delay, in milli"):
        load_toml(path, NetSettings)
    path.write_text("link_delay = 5\n")
    assert load_toml(path, NetSettings).completed().links.startswith("links of 5 ms by")


def test_windows_fit_the_queues_of_links_with_a_rate():
    assert settings(window=None, rate=10.0).completed().window == 32
    assert settings(window=None, rate=10.0, jobs=2).completed().window == 16
    assert settings(window=None, rate=10.0, jobs=32, workers=1, racks=1).completed().window == 1
    assert settings(window=128, rate=10.0, jobs=2).completed().window == 128


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ({"delay": "soon"}, "the kernel refused `tc qdisc add dev .* delay soon"),
        ({"rate": 5000.0}, "a rate of 5000 Mbit/s"),
    ],
)
def test_links_are_as_asked_for_or_not_at_all(tmp_path, links, words):
    topo = PlanTopo(
        settings(workers=2, racks=1).shared_plan(), links=Links(**links), folder=tmp_path
    )
    with pytest.raises(InnetError, match=words), network(topo, limited=True):
        pass


def test_netem_delays_links():
    if not has_feature("netem"):
        pytest.skip("the kernel has no netem")
    result = allreduce.run(settings(racks=2, link_delay=20.0, delay_by="netem", size=3000))
    assert result.report.exact
    assert result.report.seconds.network > 0.08 * result.report.rounds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topology", "dumbbell", "--output", "x.npy"], "takes the sum of one job"),
        (["--jobs", "2", "--program", "hashed"], "hashed serves one job"),
        (["train", "--jobs", "2"], "a training is a single job"),
        (["--jobs", "2", "--window", "1024"], "Choose a smaller window"),
        (["--topology", "fat-tree", "--workers", "17"], "has 16 hosts"),
        (["--topology", "fat-tree", "--program", "slots"], "knows one switch only"),
        (["--delay", "-1"], "link_delay"),
        (["--delay", "1", "--delay-by", "magic"], "delay_by"),
    ],
)
def test_errors_are_told_in_one_message(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["innet", "net", *arguments])
    assert app.run() == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert words in said
    assert "Traceback" not in said


def test_a_job_that_is_not_there():
    with pytest.raises(InputError, match="there is no job 3; the network has 2"):
        settings(jobs=2, job=3).plan()
    with pytest.raises(InputError, match="input files need a single job"):
        settings(jobs=2, input=("a.npy",)).gradients()
