"""A P4Runtime controller for innet's aggregation program: admit a job, read its slots, end it.

    innet p4 export slots-32                       # slots-32.json and slots-32.p4info.txtpb
    sudo innet simple-switch-grpc --no-p4 -i 1@veth1 -i 2@veth2
    python examples/p4runtime_job.py --workers 2 --slots 4 --seconds 10

Worker w is at port w + 1. The job's slots are the first ones; each is two cells of every register,
as the program keeps two copies. What docs/wire-format.md calls `chunk` says who uses a slot.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from innet.p4runtime.client import P4RuntimeClient
from innet.p4runtime.messages import p4info_from_text


def entities(switch, job, workers, slots):
    """What admits a job: a multicast group, and for each worker its bit, slots and address."""
    full = (1 << workers) - 1
    ports = range(1, workers + 1)
    # A copy's instance is the worker's number.
    yield switch.multicast_group(job, [(port, worker) for worker, port in enumerate(ports)])
    for worker, port in enumerate(ports):
        yield switch.entry(
            "admission.admission",
            {
                "standard_metadata.ingress_port": port,
                "hdr.innet.job": job,
                "hdr.innet.epoch": 0,
                "hdr.innet.worker": worker,
            },
            "admission.admit",
            {
                "worker_bit": 1 << worker,
                "full_bitmap": full,
                "group": job,
                "slot_base": 0,
                "slot_mask": slots - 1,
            },
        )
        mac, ip = 0x020000000000 + port, 0x0A000000 + port
        yield switch.entry(
            "deliver",
            {"standard_metadata.egress_port": port},
            "address",
            {"mac": mac, "ip": ip, "udp_port": 48879},
        )


def slots_of(switch, slots):
    """Words that say which chunk each cell of the job's slots holds; 0 for none."""
    cells = [switch.register("pool.chunk", index) for index in range(2 * slots)]
    return [
        int.from_bytes(each.register_entry.data.bitstring, "big") for each in switch.read(*cells)
    ]


def main():
    """Admit a job, wait, read its slots, end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grpc-addr", default="127.0.0.1:9559")
    parser.add_argument("--device-id", type=int, default=0)
    parser.add_argument("--program", type=Path, default=Path("slots-32.json"))
    parser.add_argument("--job", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=4, help="a power of two")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the job runs")
    given = parser.parse_args()
    p4info = p4info_from_text(given.program.with_suffix(".p4info.txtpb").read_text())
    with P4RuntimeClient(given.grpc_addr, p4info, given.device_id) as switch:
        switch.set_program(given.program.read_bytes())
        job = list(entities(switch, given.job, given.workers, given.slots))
        # All of it at once: no packet meets half a job.
        switch.write(*[("INSERT", each) for each in job], atomicity="DATAPLANE_ATOMIC")
        print(f"job {given.job}: {given.workers} workers, {given.slots} slots")
        time.sleep(given.seconds)
        used = sum(1 for word in slots_of(switch, given.slots) if word)
        print(f"{used} of {2 * given.slots} cells hold a chunk")
        switch.write(*[("DELETE", each) for each in reversed(job)], atomicity="DATAPLANE_ATOMIC")
        print(f"job {given.job} has ended")


if __name__ == "__main__":
    main()
