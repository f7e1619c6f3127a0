"""What deploy/python/allod.py makes of answers that are hard to get, of a server that is made up here."""

import json
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2])

import allod  # noqa: E402


def server(*answers):
    """A server that answers one request after the other so (`result` or `error`), or by None hangs up; and what it was
    asked.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked, left = [], list(answers)

    def serve():
        while left:
            client, _ = listener.accept()
            with client, client.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    asked.append(request["method"])
                    answer = left.pop(0)
                    if answer is None:
                        break
                    try:
                        client.sendall(json.dumps({"id": request["id"], **answer}).encode() + b"\n")
                    except OSError:
                        break  # It took no more.
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


{"long": long, "refused": refused, "late": late, "waits": waits}[sys.argv[1]]()
print("ok")
