"""Runs checks in several processes that are ranks of a process group of gloo.

A script of checks ends with ``sys.exit(main(CHECKS))`` and is called by

    python SCRIPT FOLDER UNTIL RANKS NAME ...

Each rank writes what became of each check to FOLDER/RANK.json: "passed", or the error in one line
and a traceback. When one has failed, or when time.monotonic() is UNTIL, the others write what their
threads were doing to FOLDER/RANK.txt; standard output says which of both it was.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

Checks = dict[str, Callable[[], None]]


def run_rank(rank: int, ranks: int, store: dist.Store, folder: Path, checks: Checks) -> int:
    """One rank's exit status. It ends at the first check that fails, since the others may wait for
    it in the middle of that check.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    found = {}
    for name, check in checks.items():
        try:
            check()
            found[name] = "passed"
        except BaseException as error:
            what = " ".join(str(error).split())  # in one line, which short summaries show
            found[name] = f"{type(error).__name__}: {what}\n{traceback.format_exc()}"
        (folder / f"{rank}.json").write_text(json.dumps(found))
        if found[name] != "passed":
            return 1
        dist.barrier()
    dist.destroy_process_group()
    return 0


def launch(folder: Path, until: float, count: int, checks: Checks) -> int:
    """Fork the ranks, which saves each of them the import of torch, and watch them.

    When one fails, or when it is ``until``, all that are left write to FOLDER/RANK.txt where they
    are and are ended. Returns an exit status.
    """
    # Otherwise each rank would look through it for garbage, and so copy it, most of all at its end.
    gc.collect()
    gc.freeze()
    told, tell = os.pipe()
    ranks = {}
    for rank in range(count):
        if (process := os.fork()) == 0:
            stacks = (folder / f"{rank}.txt").open("w")
            faulthandler.register(signal.SIGUSR1, file=stacks)
            port = int(os.read(told, 6))
            store = dist.TCPStore("127.0.0.1", port, is_master=False)
            sys.exit(run_rank(rank, count, store, folder, checks))  # with all that is done at exit
        ranks[process] = rank
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(tell, count * f"{store.port:6}".encode())
    status = 0
    while ranks and not status:
        process, how = os.waitpid(-1, os.WNOHANG)
        if process:
            rank = ranks.pop(process)
            if status := os.waitstatus_to_exitcode(how):
                print(f"rank {rank} was the first to fail, with status {status}")
        elif time.monotonic() > until:
            late = ", ".join(map(str, ranks.values()))
            print(f"not failed, but come to no end in time: ranks {late}")
            status = 1
        else:
            time.sleep(0.02)
    for sent in (signal.SIGUSR1, signal.SIGKILL):
        for process in ranks:
            os.kill(process, sent)
        time.sleep(1.0 if ranks else 0.0)
    return status


def main(checks: Checks) -> int:
    """Run the checks that the command line names; an exit status."""
    folder, until, count, *names = sys.argv[1:]
    chosen = {name: checks[name] for name in names}
    return launch(Path(folder), float(until), int(count), chosen)
