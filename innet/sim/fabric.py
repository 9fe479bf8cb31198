"""Links between switches: how much hosts may send through each, and what that makes of a network.

A fabric blocks where hosts may send more through a link than it carries. By default links between
switches are as fast as they need to be (``trunk_rate`` of ``innet.sim.Network``), as otherwise what
a network limits would be this choice, and not the all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.records import Fabric

_MOST_STEPS = 1 << 20  # of Python's, for paths of which one is chosen by a hash
_ENOUGH = 1.0005  # what is oversubscribed by less is so by rounding


def loads(hosts: NDArray[np.float64], trunks: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Bits per second that hosts may send through each trunk in one direction, at most.

    Any pairs of hosts may send to each other, each at no more than the rate of its link (the hose
    model; Duffield et al., SIGCOMM 1999). Where several shortest paths lead to a host, each carries
    an equal share (ECMP).

    Args:
        hosts: shape (switches,), rates of the hosts' links at each switch, added up.
        trunks: the switches at both ends of each.
    """
    neighbors: list[list[tuple[int, int]]] = [[] for _ in hosts]  # (switch, trunk)
    for trunk, (one, other) in enumerate(trunks):
        neighbors[one].append((other, trunk))
        neighbors[other].append((one, trunk))
    order, parents, components = _searched(neighbors)
    if len(trunks) == len(hosts) - components:
        return _of_forest(hosts, order, parents, len(trunks))
    ends = np.flatnonzero(hosts)
    if len(ends) * len(trunks) <= _MOST_STEPS:
        return _of_paths(hosts, ends, neighbors, len(trunks))
    # Too many to follow: what hosts send leaves their switch by all of its trunks alike.
    share = np.array(
        [rate / max(1, len(near)) for rate, near in zip(hosts, neighbors, strict=True)]
    )
    found: NDArray[np.float64] = share[np.array(trunks)].max(axis=1)
    return found


def _searched(
    neighbors: Sequence[Sequence[tuple[int, int]]],
) -> tuple[list[int], list[tuple[int, int]], int]:
    """Switches from each first one on, the (switch, trunk) before each, and how many are first."""
    parents = [(-1, -1)] * len(neighbors)
    seen = [False] * len(neighbors)
    order: list[int] = []
    components = 0
    for first in range(len(neighbors)):
        if seen[first]:
            continue
        components += 1
        seen[first] = True
        reached = [first]
        for here in reached:
            for there, trunk in neighbors[here]:
                if not seen[there]:
                    seen[there] = True
                    parents[there] = (here, trunk)
                    reached.append(there)
        order += reached
    return order, parents, components


def _of_forest(
    hosts: NDArray[np.float64],
    order: Sequence[int],
    parents: Sequence[tuple[int, int]],
    trunks: int,
) -> NDArray[np.float64]:
    """A trunk carries what the hosts on its smaller side send or receive."""
    below = hosts.copy()
    for switch in reversed(order):
        if parents[switch][0] >= 0:
            below[parents[switch][0]] += below[switch]
    whole = np.zeros(len(hosts))
    found = np.zeros(trunks)
    for switch in order:
        parent, trunk = parents[switch]
        whole[switch] = below[switch] if parent < 0 else whole[parent]
        if parent >= 0:
            found[trunk] = min(below[switch], whole[switch] - below[switch])
    return found


def _of_paths(
    hosts: NDArray[np.float64],
    ends: NDArray[np.int64],
    neighbors: Sequence[Sequence[tuple[int, int]]],
    trunks: int,
) -> NDArray[np.float64]:
    """The lesser of two bounds: what senders can give, and what receivers can take."""
    most = np.zeros((trunks, 2, len(ends)))  # of what each end sends to any other, the share
    taken = np.zeros((trunks, 2))
    for target in ends.tolist():
        order, distance = _from(target, neighbors)
        shares = np.zeros((len(neighbors), len(ends)))
        shares[ends, np.arange(len(ends))] = 1.0
        for switch in reversed(order[1:]):
            ways = [each for each in neighbors[switch] if distance[each[0]] < distance[switch]]
            part = shares[switch] / len(ways)
            for nearer, trunk in ways:
                shares[nearer] += part
                side = int(switch < nearer)
                np.maximum(most[trunk, side], part, out=most[trunk, side])
                taken[trunk, side] += hosts[target] * part.max()
    given = most @ hosts[ends]
    found: NDArray[np.float64] = np.minimum(given, taken).max(axis=1)
    return found


def _from(
    target: int, neighbors: Sequence[Sequence[tuple[int, int]]]
) -> tuple[list[int], dict[int, int]]:
    """The switches that reach ``target``, nearest first, and the number of links to it."""
    distance = {target: 0}
    order = [target]
    for here in order:
        for there, _ in neighbors[here]:
            if there not in distance:
                distance[there] = distance[here] + 1
                order.append(there)
    return order, distance


def described(
    hosts: NDArray[np.int64],
    links: Sequence[float],
    trunks: Sequence[tuple[int, int]],
    rates: Sequence[float],
    needed: NDArray[np.float64],
) -> Fabric:
    """A network's hosts, switches and trunks.

    Args:
        hosts: shape (switches,), how many are at each switch.
        links: rates of the hosts' links, bits per second.
        trunks: the switches at both ends of each.
        rates: of the trunks.
        needed: ``loads``.
    """
    over = max((need / rate for need, rate in zip(needed, rates, strict=True)), default=1.0)
    return Fabric(
        hosts=len(links),
        switches=len(hosts),
        leaves=int((hosts > 0).sum()),
        trunks=len(trunks),
        rate=min(links, default=0.0),
        rate_max=max(links, default=0.0),
        trunk_rate=min(rates, default=0.0),
        trunk_rate_max=max(rates, default=0.0),
        oversubscription=float(over) if over > _ENOUGH else 1.0,
    )
