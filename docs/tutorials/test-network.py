# %% [markdown]
# # Test a P4 network in pytest
#
# You write a test of a network of P4 switches that takes a fraction of a second, needs no root, and gives the same answer on every
# machine: with losses, a link that fails, and a table entry that comes late.
#
# `forward.p4` forwards frames by their destination address. `innet p4 example` copies it, with what p4c made of it.

# %% language="bash"
# innet p4 example forward -o forward

# %% [markdown]
# ## A network
#
# Two switches between two hosts. A `Testbed` is the network; `h1` and `h2` get the addresses `02:00:00:00:00:01` and
# `02:00:00:00:00:02`.

# %%
from innet.sim import Testbed


def make(loss=0.0, seed=1):
    bed = Testbed("1g", seed=seed)
    # By host, the port of s1 and that of s2.
    ways = {"02:00:00:00:00:01": (1, 2), "02:00:00:00:00:02": (2, 1)}
    switches = [
        bed.switch(
            name,
            "forward/forward.json",
            commands=[
                f"table_add addresses forward {mac} => {ports[n]}" for mac, ports in ways.items()
            ],
        )
        for n, name in enumerate(["s1", "s2"])
    ]
    h1, h2 = bed.host("h1"), bed.host("h2")
    bed.link(h1, switches[0], port=1)
    trunk = bed.link(switches[0], switches[1], ports=(2, 2), loss=loss)
    bed.link(h2, switches[1], port=1)
    return bed, switches, trunk, h1, h2


# %% [markdown]
# ## A test
#
# A host is a coroutine. An `await` is a point where simulated time passes, and none passes anywhere else.


# %%
def test_a_datagram_arrives():
    bed, _, _, h1, h2 = make()

    @h1.run
    async def send():
        h1.udp().send(b"hello", h2.ip, 7)

    @h2.run
    async def receive():
        datagram = await h2.udp(7).receive(timeout=1e-3)
        return datagram.payload, h2.now

    bed.run()
    payload, seconds = receive.result()
    assert payload == b"hello"
    assert seconds < 10e-6
    return seconds


print(f"it took {test_a_datagram_arrives() * 1e6:.3f} us")

# %% [markdown]
# The time is exact: three links of 1 Gbit/s and 500 ns, two pipelines of 600 ns, and what the hosts take for a packet. The
# presets' numbers are in [the reference](../simulation.md#networks).
#
# ## Losses
#
# A sender that waits for acknowledgements, and sends again. The seed decides which packets are lost, so that a test that
# fails fails again.


# %%
def send_reliably(h1, h2, messages, timeout=50e-6):
    socket = h1.udp(5000)

    @h1.run
    async def send():
        again = 0
        for number in range(messages):
            answer = None
            while answer is None or answer.payload != bytes([number]):
                socket.send(bytes([number]), h2.ip, 7)
                answer = await socket.receive(timeout=timeout)
                again += answer is None
        return again

    @h2.serve
    async def acknowledge():
        server = h2.udp(7)
        while True:
            message = await server.receive()
            server.send(message.payload, message.address, message.port)

    return send


def test_losses_are_repaired():
    bed, _, _, h1, h2 = make(loss=0.1)
    send = send_reliably(h1, h2, messages=100)
    bed.run()
    assert send.result() > 0
    return send.result(), bed.now


again, seconds = test_losses_are_repaired()
print(f"{again} time-outs, {seconds * 1e3:.2f} ms")

# %% [markdown]
# ## What happens at a time
#
# Links fail and come back; tables change. What is scheduled happens before the packets of its time.


# %%
def test_a_link_that_fails_and_a_late_entry():
    bed, (s1, _), trunk, h1, h2 = make()
    trunk.down(100e-6, 300e-6)
    s1.at(400e-6, "table_clear addresses")
    s1.at(600e-6, "table_add addresses forward 02:00:00:00:00:01 => 1")
    s1.at(600e-6, "table_add addresses forward 02:00:00:00:00:02 => 2")
    send = send_reliably(h1, h2, messages=60)
    bed.run()
    assert 8 <= send.result() <= 10  # of 50 us each: 200 us without a link, 200 us without entries
    assert bed.now > 600e-6
    return send.result()


print(f"{test_a_link_that_fails_and_a_late_entry()} time-outs")

# %% [markdown]
# ## When a test goes wrong
#
# A host that waits for ever is an error that names host, line and time. Nothing hangs.

# %%
bed, _, _, h1, h2 = make()


@h2.run
async def wait_for_nobody():
    await h2.receive()


try:
    bed.run()
except Exception as error:
    print(str(error).splitlines()[0])

# %% [markdown]
# To see packets, `bed.capture("folder")` writes a pcap of every link before `run()`. To see what a switch does with one,
# `switch.model.trace(port, frame)` returns [each step](../switch.md).
#
# ## As a file for pytest
#
# Put `make` and the functions that begin with `test_` into `test_network.py`, beside the folder `forward`. Then run `pytest`.
