# %% [markdown]
# # In BMv2's place
#
# You have P4 programs, tables and scripts for `simple_switch`. You start innet's switch in its place, fill its tables
# over Thrift, and send packets through it. Then you trace a packet.
#
# BMv2 itself is not needed.
#
# ## A program
#
# `forward.json` is what p4c makes of `p4/examples/forward.p4`: a table from destination address to port, and counters.
# Take any program of yours instead.

# %% language="bash"
# innet p4 example forward
# innet switch explain forward.json | head -24

# %% [markdown]
# ## Start it, fill its table
#
# `innet simple-switch` has simple_switch's options. `innet switch cli` has the commands of `simple_switch_CLI`; you
# can also use `simple_switch_CLI` itself. Without `-i` the switch has no interfaces, so that no root is needed.

# %% language="bash"
# innet simple-switch --thrift-port 19090 forward.json > switch.log 2>&1 &
# trap 'kill $! 2>/dev/null; wait' EXIT
# for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/19090) 2>/dev/null && break; sleep 0.1; done
# innet switch cli --thrift-port 19090 <<'END'
# table_add ForwardIngress.addresses ForwardIngress.forward 0x020000000001 => 1
# table_add ForwardIngress.addresses ForwardIngress.forward 0x020000000002 => 2
# table_dump ForwardIngress.addresses
# END

# %% [markdown]
# ## Send packets through interfaces
#
# This needs root. It makes a network namespace of its own with two cables, `a0`–`a1` and `b0`–`b1`, starts the switch
# at `a1` and `b1`, and sends a frame into `a0`. The namespace is gone when the script ends.

# %% language="bash" needs="root"
# cat > network.sh <<'END'
# set -e
# ip link set lo up
# for each in a b; do
#     ip link add ${each}0 type veth peer name ${each}1
#     ip link set ${each}0 up; ip link set ${each}1 up
# done
# innet simple-switch -i 1@a1 -i 2@b1 forward.json > switch.log 2>&1 &
# trap 'kill $!; wait' EXIT
# for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/9090) 2>/dev/null && break; sleep 0.1; done
# echo 'table_add ForwardIngress.addresses ForwardIngress.forward 0x020000000002 => 2' |
#     innet switch cli > /dev/null
# python3 send.py
# END
# cat > send.py <<'END'
# import socket
#
# into, out = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in "ab")
# into.bind(("a0", 0))
# out.bind(("b0", 0))
# out.settimeout(60)
# frame = bytes.fromhex("020000000002 020000000001 88b5") + b"over the switch" + bytes(40)
# into.send(frame)
# while (received := out.recv(2000)) != frame:
#     pass
# print("b0 received:", received[14:29])
# END
# unshare -n bash network.sh

# %% [markdown]
# ## See what happens to a packet
#
# simple_switch has a log. Here `--trace` shows each step of a packet: the parser, look-ups, actions, and what leaves.

# %% language="bash"
# echo 'table_add ForwardIngress.addresses ForwardIngress.forward 0x020000000002 => 2' > commands.txt
# innet switch explain forward.json --commands commands.txt \
#     --trace --packet 1:02000000000202000000000188b50102

# %% [markdown]
# ## Under simple_switch's name
#
# Scripts that start `simple_switch` by its name run unchanged with `innet link-tools --into bin` and
# `PATH=$PWD/bin:$PATH`. What differs from simple_switch, by choice, and how fast it is:
# [simple_switch's place](../simple-switch.md).
