"""The compiled engine of the switch model: BMv2 JSON to machine code, by Numba and LLVM.

A program becomes one Python function that runs a batch of packets, and that Numba compiles:

=========================  ========================================================================
``compiler``               whether a program can be compiled; its source; its machine code
``lower/``                 ``innet.switch.ir`` to the structured statements of ``lowered``:
                           ``program`` (parser, pipelines, checksums), ``actions``, ``headers``
                           (and stacks), ``expressions``, ``control_flow`` (jumps to ifs and loops),
                           ``vectorize`` (like statements to loops)
``analysis``               fields that affect the output, are written, or pass through
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
``runtime/``               functions for emitted code: ``core`` (bytes, arrays, integers),
                           ``lookups``, ``hashes``, ``externs`` (meters, random), ``queue``,
                           ``wide`` integers
``records``                what a recording build writes of each event; ``lower/notes`` and
                           ``Writer.note`` put it between the statements, ``runtime/recording``
                           writes it, ``innet.switch.recording`` reads it
``traits``                 properties of a program that the engine and the emitter share
``engine``                 runs batches through machine code; ``queued`` does so with egress queues
                           and sweeps for idle entries, ``innet.switch.inline`` from other compiled
                           code
``buffers``                output buffers and their reuse
=========================  ========================================================================

The path of a packet
--------------------

1. ``Switch.process`` (``innet/switch/switch.py``) makes a batch and passes it to its engine.
2. ``JitEngine.process`` (``engine.py``) updates the arrays that the control plane changed
   (``tables/``), writes the arguments into a frame and calls the machine code (``native.py``); with
   egress queues ``queued.py`` does the last two.
3. The emitted function, ``process`` in ``JitEngine.source_path``, runs the packets in order. The
   file on the right writes each step; emitted code calls the files in brackets:

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
                        queues, clones, resubmission: ``QueueLoop`` [``runtime/queue.py``]
   egress               as ingress, once for each copy
   update checksums     as verify
   deparser             ``emit/packet.py`` ``deparse``, ``emit/headers.py`` stores fields
   ===================  ==========================================================================

4. ``JitEngine.process`` adds up statistics, delivers digests to the control plane, and returns the
   packets that left as a batch.

``innet switch explain --source FILE`` writes the emitted module of a program.
"""

from innet.switch.jit.engine import JitEngine

__all__ = ["JitEngine"]
