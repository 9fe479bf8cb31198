"""Transports: what carries packets between hosts and their switch.

A transport has the three methods of ``innet.network.Transport``: send, receive and wait.
``innet.allreduce.worker.Worker`` also asks for its clock and name
(``innet.network.ClockedTransport``). To add one that commands know by its name, add a module here,
and a line to ``transports.py``.

    transports.py    the registry, and what a transport is to a switch service and its workers
    memory.py        switches in this process; ``NetworkTransport`` joins several by links
    udp.py           a worker's UDP socket
    packet_socket.py a raw socket of an interface
    raw.py           raw Ethernet: the ports of a switch
    raw_host.py      raw Ethernet: a host's end
    shared_memory.py a worker's rings in memory that the switch process of its machine shares
    rings.py         those rings: both ends, and how the memory is handed over
    atomics.py       loads and stores in memory that processes share, compiled
    peers.py         the switch's end of UDP and of rings: one socket with many peers
    socket_loop.py   one worker at one UDP socket or pair of rings in compiled code
    messages.py      batches of packets at a socket, sleeping, and what they are made of
    system_calls.py  the system calls, compiled
"""
