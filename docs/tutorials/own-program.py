# %% [markdown]
# # A P4 program of your own
#
# You write a switch program, compile it, look at it, send it packets, and let it sum gradients.
#
# You need p4c, P4's compiler, with its BMv2 back end (`p4c-bm2-ss`). Without it, `innet p4 example
# saturating` copies the compiled program; everything else works as shown.
#
# ## The source
#
# Sums of int32 wrap around when they overflow. This program keeps them at the largest or smallest int32 instead.
# The source is short, because the file that adds values (`p4/include/values.p4`) does this if `SATURATING` is
# defined. To change more, put a file of the same name as an included file beside your source; it is used instead.

# %%
from pathlib import Path

folder = Path("mypaper")
folder.mkdir()
(folder / "saturating.p4").write_text("""\
// slots, with sums that stay at the ends of int32.
#define SATURATING
#include "slots.p4"
""")
(folder / "programs.toml").write_text("""\
[saturating]
source = "saturating.p4"
description = "slots whose sums stay at the ends of int32"
values = [32]
parameters = { SLOTS = 256 }
""")

# %% [markdown]
# `programs.toml` lists what is compiled: here one variant, with 32 values in a packet and 256 slots.
#
# ## Compile it

# %% language="bash"
# if command -v p4c-bm2-ss >/dev/null; then
#     innet p4 compile mypaper > compiled.log
# else
#     innet p4 example saturating -o mypaper > copied.log
# fi
# ls mypaper mypaper/compiled/*.json.gz

# %% [markdown]
# ## Look at it
#
# `innet switch explain` shows the parser, tables, actions and registers. Here are the first lines, and the
# statement that adds the first value: `saturate_signed` keeps it within 32 bits.

# %% language="bash"
# innet switch explain mypaper/compiled/saturating-32.json.gz > explained.txt
# head -12 explained.txt
# grep -m 1 -o 'values.v0 = saturate.*' explained.txt

# %% [markdown]
# ## Packets by hand
#
# The switch knows nothing of gradients. `process` takes pairs of a port and a packet, and returns the packets that
# leave, with their ports. This program drops and counts packets that are not innet's:

# %%
from innet.switch import Switch

switch = Switch.load("mypaper/compiled/saturating-32.json.gz", engine="interpret")
print(switch.process([(1, b"no packet of innet's")]))
print(switch.command("counter_read SlotsIngress.dropped 1"))

# %% [markdown]
# ## Sum gradients with it
#
# Two registrations tell innet where the program is and how to fill its tables. The tables are those of `slots`, so
# `SlotsAggregation` fills them. `saturates = True` says that sums do not wrap around. innet then refuses codecs that
# need sums to wrap around.

# %%
import numpy as np

import innet
from innet.programs import FOLDERS
from innet.topology import AGGREGATIONS
from innet.topology.slots import SlotsAggregation


class Saturating(SlotsAggregation):
    saturates = True


FOLDERS.register("saturating", folder.absolute())
AGGREGATIONS.register("saturating", Saturating)

rng = np.random.default_rng(0)
gradients = [rng.standard_normal(5_000, np.float32) for _ in range(4)]
sums = {}
for program in ("slots", "saturating"):
    sums[program], report = innet.all_reduce(gradients, program=program, values_per_packet=32)
    print(f"{program:10} exact: {report.exact}, {report.packets_sent} packets")
print("the same sums:", (sums["slots"] == sums["saturating"]).all())

# %% [markdown]
# Nothing overflowed, so both programs give the same sums. On a lossy network the program still adds each worker once:

# %%
from innet.network import Faults

total, report = innet.all_reduce(
    gradients,
    program="saturating",
    values_per_packet=32,
    faults=Faults(loss=0.05, duplicate=0.05, reorder=0.1),
    seed=1,
)
print(report.exact, report.retransmissions, (total == sums["slots"]).all())

# %% [markdown]
# ## Where it differs: an overflow
#
# Codecs scale gradients so that no sum overflows. To see the difference, send integers without a codec:
# `EmulatedNetwork` is the network in memory, with the switch and the workers' protocol.

# %%
from innet.core.reduce_op import ReduceOp, Segment
from innet.topology import EmulatedNetwork, Request, make_plan

integers = np.array([2_000_000_000, 5, -2_000_000_000], np.int32)
for program in ("slots", "saturating"):
    network = EmulatedNetwork(make_plan(program, 32, Request(workers=2, window=4)))
    for worker in network.workers:
        worker.start([Segment(ReduceOp.SUM, integers)], network.now)
    network.run()
    (summed,) = network.workers[0].results()
    print(f"{program:10}", summed)

# %% [markdown]
# ## Would it fit a Tofino?

# %% language="bash"
# innet p4 check mypaper/compiled/saturating-32.json.gz | head -13

# %% [markdown]
# To use the program in commands (`innet allreduce --program saturating`), in Mininet and in the service, register
# it by entry points: [extending innet](../extending.md#a-p4-program-of-your-own). Programs that have nothing to do with
# innet's packets run on the switch as well: [testing P4 programs](../switch.md#tools).
