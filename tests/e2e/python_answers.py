"""What deploy/python/allod.py makes of answers that are hard to get, of a server that is made up here."""

import json
import socket
import sys
import threading

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


{"long": long}[sys.argv[1]]()
print("ok")
