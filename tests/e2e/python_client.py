"""What deploy/python/allod.py promises, against the server whose address is the first argument."""

import socket
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2])

import allod  # noqa: E402


def cut_once(server):
    """A wire to the server that breaks the first connection when its first answer comes, and carries the second."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(source, target):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def serve():
        client, _ = listener.accept()
        with socket.create_connection(server) as up:
            up.sendall(client.recv(1 << 16))
            up.recv(1 << 16)  # It was carried out, and nobody hears of it.
            client.close()
        client, _ = listener.accept()
        up = socket.create_connection(server)
        threading.Thread(target=carry, args=(client, up), daemon=True).start()
        carry(up, client)

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


host, _, port = sys.argv[1].rpartition(":")
with allod.Client(sys.argv[1]) as register:
    register.call("network.create", name="lan", subnets=[{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}])
    held = register.call("ip.allocate", network="lan", owner="web/0", labels={"näme": "wért"})
    assert (held["interface"], held["created"]) == ("10.0.0.2/24", True), held

    # A refusal says what stands in the way, and is not repeated.
    try:
        register.call("ip.claim", network="lan", owner="web/1", address="10.0.0.2")
        raise AssertionError("10.0.0.2 is held")
    except allod.Refused as refused:
        assert refused.kind == "already_in_use" and refused.data["held_by"]["owner"] == "web/0", refused.data
    try:
        register.call("ip.allocate", netwrok="lan", owner="x")
        raise AssertionError("a typing mistake")
    except allod.Refused as refused:
        assert refused.data["field"] == "netwrok", refused.data

    # Many at once, answered in whatever order.
    numbers = [register.begin("ip.allocate", {"network": "lan", "owner": f"many/{n}"}) for n in range(200)]
    addresses = {register.wait(number)["address"] for number in reversed(numbers)}
    assert len(addresses) == 200

    # Events, from a list on. Whoever has seen enough asks on.
    listed = register.call("ip.list", network="lan", limit=1)
    told = register.call("ip.allocate", network="lan", owner="told/0")
    for event in register.events(network="lan", since=listed["cursor"], idle=30):
        assert (event["type"], event["address"]) == ("granted", told["address"]), event
        break
    assert register.call("server.ping") == "pong"

# A lost answer: what is safe is repeated and leads to one address, what is not is told.
with allod.Client(cut_once((host, int(port)))) as register:
    again = register.call("ip.allocate", network="lan", owner="lost/0")
    assert again["created"] is False, again
with allod.Client(cut_once((host, int(port)))) as register:
    try:
        register.call("ip.release", network="lan", owner="lost/0")
        raise AssertionError("whether it was released nobody can say")
    except allod.Lost:
        pass
    assert register.call("ip.release", network="lan", owner="lost/0") == {"released": []}

# One of several hangs: it is passed over before anything is asked of it, and remembered no more often than once.
hung = socket.create_server(("127.0.0.1", 0))  # The kernel accepts for it.
with allod.Client("127.0.0.1:%d" % hung.getsockname()[1], sys.argv[1], timeout=3) as register:
    held = register.call("ip.allocate", network="lan", owner="several/0")
    released = register.call("ip.release", network="lan", owner="several/0")
    assert released == {"released": [held["address"]]}, released

# One of several speaks something else.
other = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: other.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), daemon=True).start()
with allod.Client("127.0.0.1:%d" % other.getsockname()[1], sys.argv[1], connect_timeout=0.5) as register:
    assert register.call("server.ping") == "pong"

# Nobody there: nothing was sent, whatever it was.
try:
    allod.Client("127.0.0.1:1", timeout=0.2).call("ip.release", network="lan", owner="x")
    raise AssertionError("nobody listens there")
except allod.NotSent:
    pass

assert allod.is_safe("ip.release", {"if_generation": 1}) and not allod.is_safe("ip.release", {})
assert allod.is_safe("subnet.add", {"if_absent": True}) and not allod.is_safe("subnet.add", {})
assert not allod.is_safe("ip.decline", {"again": True}) and allod.is_safe("ip.decline", {})
print("ok")
