"""Replicas of trainings with torchft over the switch, or with a loop of one's own.

    python tests/support/torchft_checks.py

It forks them, since each would take seconds to import torch and torchft. Each line of its input is
a task, as JSON: ``replicas`` with a list of arguments for each replica, ``environment``,
``seconds`` after which all are killed, and perhaps ``successor``, the arguments of one that starts
when another was killed. It answers with one line: how each replica ended.

A replica's arguments are REPLICA LIGHTHOUSE PORT PORT FOLDER: it writes losses and weights of both,
and what the switch's reports say, to FOLDER/METHOD-REPLICA.json. The ports are those of the loops'
stores.

Or they are REPLICA LIGHTHOUSE METHOD FOLDER: one of three replicas kills itself in the middle of
its second sync, between two of its sums. The others go on. The one that starts as REPLICA 3 takes
its place, with another model than theirs. All three write their weights and what each sync did.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft import Manager
from torchft.local_sgd import DiLoCo, LocalSGD

from innet.torch.group import SwitchGroup
from innet.torch.torchft import SwitchProcessGroup

REPLICAS = 2
STEPS, SYNC_EVERY = 6, 2
DYING, DEADLY_SUM = 2, 6  # the replica, and the sum that it does not take part in
BACK = 3  # takes its place
ALONE = 4  # syncs before that
TOGETHER = 2  # syncs after that
SECONDS = timedelta(seconds=120)


def made():
    """A model that is the same in all replicas, and its optimizer."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def batches(replica, steps=STEPS):
    generator = torch.Generator().manual_seed(1000 + replica)
    for _ in range(steps):
        yield torch.randn(4, 8, generator=generator), torch.randn(4, 3, generator=generator)


def step(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def managed(replica, lighthouse, group, state):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=group,
        load_state_dict=lambda saved: [state[name].load_state_dict(saved[name]) for name in state],
        state_dict=lambda: {name: each.state_dict() for name, each in state.items()},
        min_replica_size=REPLICAS,
        use_async_quorum=False,
        init_sync=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica_{replica}",
        timeout=SECONDS,
        quorum_timeout=SECONDS,
        connect_timeout=SECONDS,
    )
    return manager, store


def with_torchft(mode, replica, lighthouse):
    """Losses of torchft's LocalSGD or DiLoCo, whose sums go through the switch."""
    net, optimizer = made()
    group = SwitchProcessGroup("lhc", SECONDS)
    manager, store = managed(replica, lighthouse, group, {"net": net, "optimizer": optimizer})
    if mode == "localsgd":
        method = LocalSGD(manager, net, optimizer, SYNC_EVERY)
    else:
        outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        method = DiLoCo(manager, [net], optimizer, outer, SYNC_EVERY)
    with method:
        losses = [step(net, optimizer, x, y) for x, y in batches(replica)]
    found = {
        "losses": losses,
        "sums": len(group.reports),
        "exact": all(each.exact is not False for each in group.reports),
        "codecs": sorted({each.codec for each in group.reports}),
        "weights": [each.tolist() for each in net.state_dict().values()],
    }
    group.shutdown()
    manager.shutdown(wait=False)
    del store
    return found


class MortalGroup(SwitchProcessGroup):
    """A group whose process dies at one of its sums."""

    sums = 0

    def allreduce(self, tensors, opts):
        self.sums += 1
        if self.sums == DEADLY_SUM:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().allreduce(tensors, opts)


def meet(folder, replica, others):
    """Wait until the managers of these replicas are there: each is known to the lighthouse."""
    Path(folder, f"{replica}.there").touch()
    wait_for(folder, [f"{each}.there" for each in others])
    time.sleep(0.3)  # for the last one's first heartbeat


def wait_for(folder, names):
    deadline = time.monotonic() + SECONDS.total_seconds()
    while not all(Path(folder, name).exists() for name in names):
        assert time.monotonic() < deadline, f"a replica did not write its file: {names}"
        time.sleep(0.05)


def with_death(mode, replica, lighthouse, folder):
    """What each sync did where a replica dies and comes back, and this one's weights at the end."""
    net, optimizer = made()
    if replica == BACK:
        with torch.no_grad():
            for each in net.parameters():
                each.fill_(100)  # what it must not bring along
        wait_for(folder, [f"{each}.alone" for each in range(DYING)])
    group = (MortalGroup if replica == DYING else SwitchProcessGroup)("lhc", SECONDS)
    manager, store = managed(replica, lighthouse, group, {"net": net, "optimizer": optimizer})
    if mode == "localsgd":
        method = LocalSGD(manager, net, optimizer, SYNC_EVERY)
    else:
        outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        method = DiLoCo(manager, [net], optimizer, outer, SYNC_EVERY)
    syncs = []
    meet(folder, replica, [BACK] if replica == BACK else range(DYING + 1))
    together = 0
    with method:
        for number, (x, y) in enumerate(batches(replica, 200), start=1):
            step(net, optimizer, x, y)
            if number % SYNC_EVERY:
                continue
            syncs.append([manager.current_step(), manager.num_participants()])
            if replica == BACK or len(syncs) > ALONE:
                together += manager.num_participants() == DYING + 1
            if together == TOGETHER:
                break
            if replica != BACK and len(syncs) == ALONE:
                Path(folder, f"{replica}.alone").touch()
                meet(folder, replica, [BACK])
    found = {"syncs": syncs, "weights": [each.tolist() for each in net.state_dict().values()]}
    group.shutdown()
    manager.shutdown(wait=False)
    del store
    return found


def by_hand(mode, replica, port):
    """The same methods, written as a loop over the same kind of group."""
    net, optimizer = made()
    store = dist.TCPStore("127.0.0.1", port, REPLICAS, is_master=replica == 0)
    group = SwitchGroup(dist.PrefixStore("by hand", store), replica, REPLICAS, SECONDS, "lhc")
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    kept = [each.detach().clone() for each in net.parameters()]
    losses = []
    for number, (x, y) in enumerate(batches(replica), start=1):
        losses.append(step(net, optimizer, x, y))
        if number % SYNC_EVERY:
            continue
        for parameter, before in zip(net.parameters(), kept, strict=True):
            mine = parameter.detach().clone() if mode == "localsgd" else before - parameter.detach()
            group.allreduce([mine]).wait()
            mine /= REPLICAS
            if mode == "localsgd":
                parameter.data.copy_(mine)
            else:
                parameter.data.copy_(before)
                parameter.grad = mine
        if mode != "localsgd":
            outer.step()
            kept = [each.detach().clone() for each in net.parameters()]
    store.set(f"done {replica}", "")
    store.wait([f"done {each}" for each in range(REPLICAS)], SECONDS)
    group.shutdown()
    return {"losses": losses, "weights": [each.tolist() for each in net.state_dict().values()]}


def run_replica(replica, lighthouse, *ports, folder):
    if len(ports) == 1:
        (mode,) = ports
        Path(folder, f"{mode}-{replica}.json").write_text(
            json.dumps(with_death(mode, replica, lighthouse, folder))
        )
        return
    for mode, port in zip(("localsgd", "diloco"), map(int, ports), strict=True):
        found = {
            "torchft": with_torchft(mode, replica, lighthouse),
            "by hand": by_hand(mode, replica, port),
        }
        Path(folder, f"{mode}-{replica}.json").write_text(json.dumps(found))


def forked(arguments, environment):
    """The process of a replica."""
    if (process := os.fork()) != 0:
        return process
    status = 1
    try:
        os.environ.update(environment)
        replica, *words, folder = arguments
        run_replica(int(replica), *words, folder=folder)
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)  # torchft's threads wait for a lighthouse that is gone


def run(task):
    """The exit status of each replica, by its first argument."""
    until = time.monotonic() + task["seconds"]
    running = {forked(each, task["environment"]): each[0] for each in task["replicas"]}
    ended = {}
    while running:
        process, how = os.waitpid(-1, os.WNOHANG)
        if process:
            status = os.waitstatus_to_exitcode(how)
            ended[running.pop(process)] = status
            successor = task.pop("successor", None) if status == -signal.SIGKILL else None
            if successor is not None:
                running[forked(successor, task["environment"])] = successor[0]
        elif time.monotonic() > until:
            for each in running:
                os.kill(each, signal.SIGKILL)
            task.pop("successor", None)
        else:
            time.sleep(0.02)
    return ended


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # what replicas would look through, and so copy
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
