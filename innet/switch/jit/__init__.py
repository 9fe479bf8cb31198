"""The compiled engine of the switch model: BMv2 JSON to machine code, by Numba and LLVM.

A program becomes one Python function that runs a batch of packets, and that Numba compiles:

=========================  ========================================================================
``compiler``               can it be compiled; its source; its machine code
``lower/``                 ``innet.switch.ir`` to the structured statements of ``lowered``:
                           ``program`` (parser, pipelines, checksums), ``actions``, ``headers``
                           (and stacks), ``expressions``, ``control_flow`` (jumps to ifs and loops),
                           ``vectorize`` (like statements to loops)
``analysis``               which fields matter, are written, or leave as they came
``emit/``                  lowered statements to Python source: ``program`` (the module, the loop
                           over packets), ``packet`` (the steps of a packet), ``queue`` (the loop
                           with egress queues, for calls with times and for programs that clone,
                           resubmit or recirculate), ``statements``,
                           ``expressions``, ``arithmetic`` (integers of any width), ``headers``
                           (from and to bytes), ``lookups``, ``hashes``, ``layout`` (the variable of
                           each field)
``codegen``                how Numba compiles the function; the object file that comes of it
``cache``, ``native``      object files on disk; machine code in memory, called without Numba
``tables/``                the state of tables as arrays that emitted code searches
``runtime/``               what emitted code calls: ``core`` (bytes, arrays, integers), ``lookups``,
                           ``hashes``, ``externs`` (meters, random), ``queue``, ``wide`` integers
``traits``                 what engine and emitter must know of a program alike
``engine``                 batches through machine code; ``queued`` those with egress queues,
                           ``buffers`` what leaves, ``inline`` the same in other compiled code
=========================  ========================================================================

The way of a packet
-------------------

1. ``Switch.process`` (``innet/switch/switch.py``) makes a batch and hands it to its engine.
2. ``JitEngine.process`` (``engine.py``) takes over what the control plane changed (``tables/``),
   writes the arguments into a frame and calls the machine code (``native.py``).
3. The emitted function, ``process`` in ``JitEngine.source_path``, takes the packets in turn. Each
   step was written by the file on the right and calls what stands there in brackets:

   ===================  ==========================================================================
   the loop             ``emit/program.py`` ``PlainLoop``, or ``emit/queue.py`` ``QueueLoop``
   fields to 0          ``emit/packet.py`` ``reset``
   parser               ``lower/program.py`` gave the states as statements;
                        ``emit/headers.py`` loads fields [``runtime/core.py``]
   verify checksums     ``emit/hashes.py`` [``runtime/hashes.py``]
   ingress              ``lower/program.py`` gave the tables and conditions, ``lower/actions.py``
                        the actions; ``emit/statements.py`` writes them
   a table              ``emit/lookups.py`` [``runtime/lookups.py``]
   a register           ``emit/statements.py``, ``emit/layout.py`` ``RegisterLayout``
   a meter, random()    ``emit/statements.py`` [``runtime/externs.py``]
   a digest             ``emit/packet.py`` ``digest``
   traffic manager      drop, unicast, multicast: ``PlainLoop._traffic_manager``;
                        clones, resubmission: ``QueueLoop`` [``runtime/queue.py``]
   egress               as ingress, once for each copy
   update checksums     as verify
   deparser             ``emit/packet.py`` ``deparse``, ``emit/headers.py`` stores fields
   ===================  ==========================================================================

4. ``JitEngine.process`` adds up statistics, hands digests to the control plane, and returns the
   packets that left as a batch.

``innet switch explain --source FILE`` writes the emitted module of a program.
"""

from innet.switch.jit.engine import JitEngine

__all__ = ["JitEngine"]
