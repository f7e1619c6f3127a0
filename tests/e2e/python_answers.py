"""What deploy/python/allod.py makes of answers that are hard to get, of a server that is made up here."""

import contextlib
import json
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2])

import allod  # noqa: E402


def server(*answers):
    """A server that answers one request after the other so (`result` or `error`, and what it tells `then`), or by None hangs
    up; and what it was asked.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked, left = [], list(answers)

    def serve():
        while left:
            client, _ = listener.accept()
            # It may take no more, and be gone.
            with client, client.makefile("rb") as lines, contextlib.suppress(OSError):
                for line in lines:
                    request = json.loads(line)
                    asked.append(request["method"])
                    answer = left.pop(0)
                    if answer is None:
                        break
                    told = [{"id": request["id"], **answer}, *answer.get("then", [])]
                    client.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in told))
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1], asked


def long():
    whole = {"result": "x" * (5 << 20)}
    address, asked = server(whole)
    with allod.Client(address) as register:
        assert register.call("deployment.apply", deployment="shop") == whole["result"]
    allod._LINE_BYTES_MAX = 1 << 20
    address, asked = server(whole, whole)
    with allod.Client(address) as register:
        try:
            register.call("deployment.apply", deployment="shop")
            raise AssertionError("it is longer than what is taken")
        except allod.TooLong:
            assert asked == ["deployment.apply"], asked


def refusal(kind, **data):
    return {"error": {"code": -32000, "message": "no", "data": {"kind": kind, **data}}}


def raised(answers, method, **params):
    """What a call ends with of a server that answers so, one try after the other."""
    address, asked = server(*answers)
    try:
        with allod.Client(address, timeout=2) as register:
            return register.call(method, **params)
    except allod.Error as error:
        return error
    finally:
        assert asked == [method] * len(answers), asked


def refused():
    in_doubt = refusal("unavailable")
    for method, kind, params in [
        ("network.update", "conflict", {"network": "lan", "if_version": 4}),
        ("ip.allocate", "already_exists", {"network": "lan", "owner": "a", "must_create": True}),
        ("ip.release", "conflict", {"network": "lan", "address": "10.0.0.5", "if_generation": 4}),
        ("deployment.commit", "not_found", {"deployment": "shop", "plan": 4}),
    ]:
        for first in (None, in_doubt):
            error = raised([first, refusal(kind)], method, **params)
            assert isinstance(error, allod.Lost) and not isinstance(error, allod.NotSent), (method, repr(error))
            assert error.__cause__.kind == kind, (method, error.__cause__)
        # The only try was not in doubt, nor was one that was not begun.
        for before in ([], [refusal("overloaded")]):
            error = raised([*before, refusal(kind)], method, **params)
            assert isinstance(error, allod.Refused) and error.kind == kind, (method, repr(error))

    # What the first try did, a repeat is answered with: its refusal says that it did nothing.
    for method, params in [("ip.allocate", {"network": "lan", "owner": "a"}), ("ip.get", {"address": "10.0.0.5"})]:
        error = raised([None, refusal("not_found")], method, **params)
        assert isinstance(error, allod.Refused), (method, repr(error))

    # The time is over before it says more than that a repeat was not begun: the first try may hold an address.
    later = {"retry_after_ms": 60_000}
    for kind, data in [("overloaded", {}), ("not_ready", {}), ("rate_limited", {}), ("unavailable", {"applied": False})]:
        passing = refusal(kind, **data, **later)
        for method in ("ip.allocate", "ip.get"):
            for first in (None, in_doubt):
                error = raised([first, passing], method)
                assert isinstance(error, allod.Lost) and not isinstance(error, allod.NotSent), (kind, repr(error))
                assert error.__cause__.kind == kind, (kind, error.__cause__)
        error = raised([passing], "ip.allocate")
        assert isinstance(error, allod.Refused) and error.kind == kind, (kind, repr(error))

    # Nobody is there any more: the first try was sent.
    error = raised([None], "ip.allocate", network="lan", owner="a")
    assert isinstance(error, allod.Lost) and not isinstance(error, allod.NotSent), repr(error)


def late():
    """Of a call whose time is over nothing is kept: neither its number nor the answer that comes late."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        client, _ = listener.accept()
        with client, client.makefile("rb") as lines:
            first, second = (json.loads(next(lines)) for _ in range(2))
            for request in first, second:
                client.sendall(json.dumps({"id": request["id"], "result": request["params"]["owner"]}).encode() + b"\n")

    threading.Thread(target=serve, daemon=True).start()
    with allod.Client("127.0.0.1:%d" % listener.getsockname()[1], timeout=0.1) as register:
        try:
            register.call("ip.allocate", network="lan", owner="a")
            raise AssertionError("it is not answered in time")
        except allod.TimedOut:
            pass
        register._timeout = 30
        assert register.call("ip.allocate", network="lan", owner="b") == "b"
        assert register._answers == {}, register._answers


def waits():
    """A repeat waits for what is left of the time, and who ends while it waits hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked, ends = [], []

    def serve():
        for _ in range(2):
            client, _ = listener.accept()
            with client, client.makefile("rb") as lines:
                asked.append(json.loads(next(lines))["params"]["wait_seconds"])
                if len(asked) == 2:
                    try:
                        ends.append(client.recv(1))
                    except ConnectionResetError:
                        ends.append("reset")
                else:
                    time.sleep(1.5)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    with allod.Client("127.0.0.1:%d" % listener.getsockname()[1], timeout=0.1) as register:
        try:
            register.call("ip.allocate", network="lan", owner="a", wait_seconds=3)
            raise AssertionError("nobody answers")
        except allod.TimedOut:
            pass
    serving.join(10)
    assert asked[0] == 3 and asked[1] < 3, asked
    assert ends == ["reset"], ends


def tells(method, subscription=1, **params):
    return {"method": method, "params": {"subscription": subscription, **params}}


def event(cursor, subscription=1):
    return tells("event", subscription, event={"type": "granted", "cursor": cursor})


def watched(*told, subscription=1):
    return {"result": {"subscription": subscription}, "then": told}


def ends_with_loss(events):
    try:
        raise AssertionError(f"{list(events)} is not all there was")
    except allod.Lost as lost:
        return str(lost)


def deaf():
    """Who is told nothing any more hears of that."""
    # A call has made another connection.
    address, _ = server(watched(event("a")), None, {"result": "x"}, watched(event("b")), {"result": {}})
    with allod.Client(address) as register:
        events = register.events(idle=30, network="lan")
        assert next(events)["cursor"] == "a"
        assert register.call("ip.get", address="10.0.0.5") == "x"
        ends_with_loss(events)
        assert next(register.events(idle=30, network="lan", since="a"))["cursor"] == "b"

    # The server has ended the subscription: it would tell no more of it.
    for end in "lagged", "cursor_lost":
        address, _ = server(watched(event("a"), tells(end), event("b")))
        with allod.Client(address) as register:
            assert [told["type"] for told in register.events(idle=30)] == ["granted", end]

    # The other side is gone without a word.
    allod._SILENCE_SECONDS = 0.2
    address, _ = server(watched())
    with allod.Client(address) as register:
        assert "no sign of life" in ends_with_loss(register.events(idle=10))


def apart():
    """What is told of one subscription is for who watches that one."""
    address, _ = server(
        watched(event("a1")), watched(event("a2"), event("b1", 2), event("b2", 2), event("a3"), subscription=2)
    )
    with allod.Client(address) as register:
        first, second = (register.events(idle=30, network=network) for network in "ab")
        turns = [first, second, first, second, first]
        assert [next(events)["cursor"] for events in turns] == ["a1", "b1", "a2", "b2", "a3"]


def left():
    """Of what nobody watches any more nothing is kept."""
    late = [event("b"), event("c")]
    address, asked = server(watched(event("a")), {"result": {}, "then": late}, {"result": "pong", "then": late})
    with allod.Client(address) as register:
        for _ in register.events():
            break
        assert register.call("server.ping") == "pong"
        assert asked == ["events.watch", "events.unwatch", "server.ping"], asked
        assert not register._events and not register._answers, (register._events, register._answers)


def due():
    """A call that its own deadline ended is over, and one that was in doubt before is so still."""
    address, asked = server(refusal("overloaded"))
    with allod.Client(address) as register:
        try:
            raise AssertionError(register.call("ip.allocate", network="lan", owner="a", deadline_ms=200))
        except allod.Refused as error:
            assert (error.kind, asked) == ("overloaded", ["ip.allocate"]), (error, asked)
    error = raised([None, refusal("overloaded")], "ip.allocate", network="lan", owner="a", deadline_ms=200)
    assert isinstance(error, allod.Lost) and error.__cause__.kind == "overloaded", repr(error)
    # What was refused for another reason was not begun, and has its time still.
    error = raised([refusal("not_ready"), refusal("not_found")], "ip.get", address="10.0.0.5", deadline_ms=200)
    assert error.kind == "not_found", repr(error)


def foreign():
    """Something else listens there."""

    def serve(listener, said):
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(said)
            client.recv(1)

    for said in b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[]\n", b"7\n", b'{"result":7}\n':
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, args=(listener, said), daemon=True).start()
        with allod.Client("127.0.0.1:%d" % listener.getsockname()[1]) as register:
            try:
                raise AssertionError(register.call("ip.release", network="lan", owner="a"))
            except allod.Lost as lost:
                assert "no JSON-RPC" in str(lost), lost
            assert register._answers == {}, register._answers


def closed():
    """What was on its way when the connection ended is lost, although there is another one."""
    address, _ = server({"result": "x"}, {"result": "pong"})
    with allod.Client(address) as register:
        number = register.begin("ip.get", {"address": "10.0.0.5"})
        register.close()
        assert register.call("server.ping") == "pong"
        try:
            raise AssertionError(register.wait(number, time.monotonic() + 5))
        except allod.Lost:
            pass


def hanging():
    """A server that answers a ping and one call, reads on, and says no more; and what it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked = []

    def serve():
        client, _ = listener.accept()
        for line in client.makefile("rb"):
            request = json.loads(line)
            asked.append(request["method"])
            if len(asked) <= 2:
                client.sendall(json.dumps({"id": request["id"], "result": "first"}).encode() + b"\n")

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1], asked


def hangs():
    """A server that hangs while a call is under way is given up, and another one asked."""
    pong = {"result": "pong"}
    # A wait that is shorter than it takes to know: the next call asks first whether anybody is there.
    (first, asked), (second, asked_then) = hanging(), server(pong, {"result": "second"}, {"result": "third"})
    with allod.Client(first, second, connect_timeout=2) as register:
        assert register.call("ip.get", address="10.0.0.5") == "first"
        register._timeout = 0.2
        try:
            raise AssertionError(register.call("ip.release", network="lan", owner="a"))
        except allod.TimedOut:
            pass
        register._timeout = 30
        assert register.call("ip.release", network="lan", owner="b") == "second"
        assert register.call("ip.release", network="lan", owner="c") == "third"
        assert asked == ["server.ping", "ip.get", "ip.release", "server.ping"], asked
        assert asked_then == ["server.ping", "ip.release", "ip.release"], asked_then

    allod._LIFE_SECONDS = 0.5
    # What is safe is repeated at the other one.
    (first, asked), (second, _) = hanging(), server(pong, {"result": "second"})
    with allod.Client(first, second) as register:
        assert [register.call("ip.get", address="10.0.0.5") for _ in range(2)] == ["first", "second"]
        assert asked == ["server.ping", "ip.get", "ip.get", "server.ping"], asked
    # What is not is told, and whoever was alone is asked again over another connection.
    (first, asked) = hanging()
    with allod.Client(first) as register:
        assert [register.call("ip.get", address="10.0.0.5") for _ in range(2)] == ["first", "first"]
        try:
            raise AssertionError(register.call("ip.release", network="lan", owner="a"))
        except allod.Lost as lost:
            assert "no sign of life" in str(lost), lost
        assert register._socket is None

    # One that is merely slow answers the ping, and is waited for.
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        client, _ = listener.accept()
        lines = client.makefile("rb")
        request = json.loads(next(lines))
        for _ in range(2):
            client.sendall(b'{"id":0,"result":"pong"}\n')
            assert b"server.ping" in next(lines)
        client.sendall(json.dumps({"id": request["id"], "result": "late"}).encode() + b"\n")

    threading.Thread(target=serve, daemon=True).start()
    with allod.Client("127.0.0.1:%d" % listener.getsockname()[1]) as register:
        assert register.call("ip.release", network="lan", owner="a") == "late"

    # Of one that says something when it is asked nothing is lost.
    address, asked = server(pong, {"result": "x"}, pong, {"result": "y"})
    with allod.Client(address, "127.0.0.1:1") as register:
        number = register.begin("ip.get", {"address": "10.0.0.5"})
        register._silent = 0.1
        assert register.call("ip.get", address="10.0.0.6") == "y", asked
        assert register.wait(number) == "x" and register._silent == 0, asked


def addresses():
    """What cannot be an address is refused where it is given, and a name that cannot be one is as a host that is not there."""
    for wrong in "127.0.0.1:70000", "127.0.0.1:0", "127.0.0.1:\u00b2", "127.0.0.1:", "h:" + "9" * 5000, ":7400", "localhost":
        try:
            raise AssertionError(allod.Client(wrong)._servers)
        except ValueError as error:
            assert f"`{wrong}` is not the address of a server" in str(error), error
    assert allod.Client("[::1]:65535")._servers == [("::1", 65535)]
    for name in "a..b:7400", "x" * 64 + ".example:7400":
        try:
            raise AssertionError(allod.Client(name).call("ip.release", network="lan", owner="a"))
        except allod.NotSent as error:
            assert name in str(error), error
        address, _ = server({"result": "pong"}, {"result": "x"})
        with allod.Client(name, address) as register:
            assert register.call("ip.release", network="lan", owner="a") == "x"


CASES = [long, refused, late, waits, deaf, apart, left, due, foreign, closed, hangs, addresses]
{case.__name__: case for case in CASES}[sys.argv[1]]()
print("ok")
