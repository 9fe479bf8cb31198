"""A test bench for programs of the architecture TNA: it executes their sources, packet by packet.

``TnaSwitch`` reads a source as it is committed, with its includes and macros, and translates it to
Python. It knows the part of P4_16 and of TNA that innet's programs use, and refuses anything else.

What it takes from the P4_16 specification and from TNA's (Intel, P4-16 Tofino Native Architecture,
public edition, 2021): widths and wrap-around of arithmetic; one read, change and write of a cell by
a register action; multicast copies with replication ids; recirculation to the pipe's own port; a
packet that the parser rejects, or that is too short, is dropped; ``drop_ctl`` is 0 at first, and no
port or group is chosen. Metadata that nothing has set holds whatever was there, here random bits,
unless the program has ``@pa_auto_init_metadata``.

What it is not: Tofino hardware, or Intel's model of it. It executes the source, not what the
compiler makes of it. Queues, mirroring, digests, meters and more than one pipe are missing.
"""

from .switch import RECIRCULATION_PORT, TnaSwitch

__all__ = ["RECIRCULATION_PORT", "TnaSwitch"]
