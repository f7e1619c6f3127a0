"""A client of allod in one file, with nothing but the standard library (Python 3.9 and later).

    from allod import Client, Refused

    with Client("127.0.0.1:7400") as register:
        held = register.call("ip.allocate", network="lan", owner="web/0")
        print(held["interface"], held["gateway"])
        try:
            register.call("ip.claim", network="lan", owner="web/1", address=held["address"])
        except Refused as refused:
            print(refused.kind, refused.data["held_by"]["owner"])

Any number of calls can be on their way at once (`begin`, then `wait` for each). A lost connection is made again, a
server that says `moved` is followed, and what the protocol calls safe is repeated until the time is over. Everything
else raises `Lost` with what is known: whether the change was made nobody can say then, so look first. So does a repeat
that is refused, where that may be because of the first try, as with `if_version`: the refusal is the `__cause__`.

One client is for one thread; several threads take a client each.
"""

import json
import random
import socket
import struct
import time

__all__ = ["Client", "Error", "Refused", "Lost", "NotSent", "TimedOut", "TooLong", "is_safe"]

_SAFE = {
    "ip.allocate", "ip.claim", "ip.acquire", "ip.renew", "ip.bind", "ip.update", "deployment.apply", "claimant.mark",
    "ip.get", "ip.find", "ip.list", "network.get", "network.list", "network.usage", "network.map", "realm.list",
    "scope.list", "deployment.plan", "deployment.get", "deployment.list", "events.history", "inventory.compare",
    "server.info", "server.ping", "cluster.nodes", "cluster.locate", "cluster.conflicts", "session.set",
    "auth.login", "rpc.discover",
}
_SAFE_WITH_GENERATION = {"ip.release", "ip.unbind", "ip.transfer"}
_CONFIGURATION = ("network.", "subnet.", "pool.", "reserved.")
# As long as what a body may ask for: one network, deployment or map is answered whole, whatever its length.
_LINE_BYTES_MAX = 64 << 20
# The longest silence while events are watched: at least a bookmark comes every 10 seconds, which may be late.
_SILENCE_SECONDS = 40
# After so long a silence, while an answer is due, the server is asked for a sign of life; after as long again it hangs.
_LIFE_SECONDS = 10
_PING = b'{"jsonrpc":"2.0","id":0,"method":"server.ping"}\n'
# A server reads no more while this many are on their way: of more it would not see the ping.
_UNANSWERED_MAX = 1000


class Error(Exception):
    """Everything that this module raises."""


class Refused(Error):
    """The server answered with an error."""

    def __init__(self, method, error):
        self.method = method
        self.code = error.get("code")
        self.data = error.get("data") or {}
        self.kind = self.data.get("kind", "")
        super().__init__(error.get("message", ""))


class Lost(Error):
    """The connection ended, or could not be made, before the answer came; or what came says nothing of the first try."""


class NotSent(Lost):
    """No server could be reached: nothing was asked of anybody."""


class TimedOut(Error):
    """No answer in the time that the call was given."""


class TooLong(Error):
    """The answer is longer than any that is taken, and would be again. What it was to tell of may have been done."""


def is_safe(method, params):
    """May this call be repeated although nobody knows what became of it?"""
    if params.get("dry_run") or method in _SAFE:
        return True
    if method == "ip.decline":
        return not params.get("again")
    if method in _SAFE_WITH_GENERATION:
        return "if_generation" in params
    if method in ("deployment.commit", "deployment.revert"):
        return True  # They name their plan.
    if method.startswith(_CONFIGURATION):
        return "if_version" in params or bool(params.get("if_absent"))
    return False


def _refusal_is_ambiguous(method, params):
    """May a refusal of a repeat speak of what the first try did? A grant with `must_create` finds the reservation that it
    made itself; what was conditional does not hold any more.
    """
    if params.get("dry_run"):
        return False
    if method in _SAFE:
        return bool(params.get("must_create"))
    return method != "ip.decline" and is_safe(method, params)


class Client:
    """One connection to a server, or to one of several that share a register.

    A server that hangs is given up: it leaves an answer out for 20 seconds, and says nothing else meanwhile although it is
    pinged after 10. Then the call under way is `Lost`, or repeated where that is safe; of several servers, the others are
    asked first from then on. After a shorter wait that ended in silence, one of several is asked nothing more before it has
    answered a ping, in `connect_timeout` seconds.
    """

    def __init__(self, *servers, timeout=30.0, connect_timeout=5.0):
        """Takes addresses as `host:port`; the first that answers is used: of several, answers a `server.ping`, in
        `connect_timeout` seconds. `timeout` is in seconds, for each call.
        """
        if not servers:
            servers = ("127.0.0.1:7400",)
        self._servers = [_address(server) for server in servers]
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._socket = None
        self._server = None  # The one of them to which the connection leads.
        self._silent = 0.0  # How many seconds were waited in vain since it said anything.
        self._received = bytearray()
        self._next_id = 1
        self._answers = {}
        self._waiting = set()
        self._events = {}  # By subscription, what was told and is not yielded yet.

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the connection. What is on its way is carried out, and nobody is told; while a call waits (`wait_seconds`) only
        what the other side has taken by then, for then the end is a reset.
        """
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._silent = 0.0
        self._received.clear()
        self._waiting.clear()
        self._events.clear()
        self._answers = {number: kept for number, kept in self._answers.items() if kept[1] is not None}

    def call(self, method, **params):
        """Calls a method and returns its result. `from_` and the like stand for names that Python keeps for itself."""
        params = {name.rstrip("_"): value for name, value in params.items()}
        wait = params.get("wait_seconds") or 0
        deadline = time.monotonic() + self._timeout + wait
        pause = 0.05
        in_doubt = False
        while True:
            if wait:
                # A repeat waits no longer than its caller: what is granted later goes to nobody.
                left = int(max(0, min(wait, deadline - time.monotonic())))
                params["wait_seconds"] = left
                if not left:
                    del params["wait_seconds"]
            try:
                number = self.begin(method, params, deadline)
                try:
                    return self.wait(number, deadline)
                except TimedOut:
                    # Nobody else knows the number: an answer that comes late is for nobody.
                    self._answers.pop(number, None)
                    raise
            except Lost as lost:
                not_sent = isinstance(lost, NotSent)
                if not (not_sent or is_safe(method, params)) or time.monotonic() + pause > deadline:
                    if in_doubt and not_sent:
                        raise Lost(f"{method}: its answer was lost, and then {lost}") from lost
                    raise
                in_doubt = in_doubt or not not_sent
            except Refused as refused:
                moved_to = refused.data.get("address") if refused.kind == "moved" else None
                if moved_to:
                    self.close()
                    first = _address(moved_to)
                    self._servers = [first, *(server for server in self._servers if server != first)]
                    continue
                passes = self._passes(refused, params)
                # Its own deadline may have passed: then it is not wanted any more.
                may_repeat = passes and not (refused.kind == "overloaded" and "deadline_ms" in params)
                if may_repeat:
                    pause = max(pause, refused.data.get("retry_after_ms", 0) / 1000)
                if not may_repeat or time.monotonic() + pause > deadline:
                    # One that says that it was not begun says it of this try.
                    if in_doubt and (passes or _refusal_is_ambiguous(method, params)):
                        raise Lost(f"{method}: its answer was lost, and a repeat is refused: {refused}") from refused
                    raise
                in_doubt = in_doubt or refused.kind == "unavailable" and refused.data.get("applied") is not False
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 2.0)

    @staticmethod
    def _passes(refused, params):
        if refused.kind == "not_ready" and refused.data.get("reason") == "restored":
            return False  # Only a start with other flags changes that.
        if refused.kind in ("not_ready", "overloaded", "rate_limited"):
            return True  # It was not begun.
        if refused.kind == "unavailable":
            return refused.data.get("applied") is False or is_safe(refused.method, params)
        return False

    def begin(self, method, params=None, deadline=None):
        """Sends a request and returns its number, for `wait`. Requests for one network take effect in the order sent."""
        self._ask_for_life(deadline)
        return self._send(method, params, deadline)

    def _send(self, method, params=None, deadline=None):
        number = self._next_id
        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        line = json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        connection = self._connected(method, deadline)
        self._answers[number] = (method, None)
        try:
            if request["params"].get("wait_seconds"):
                self._waiting.add(number)
                self._note_waits()
            connection.sendall(line)
        except OSError as error:
            self._answers.pop(number, None)
            self.close()
            raise Lost(f"{method} could not be sent: {error}") from error
        return number

    def wait(self, number, deadline=None):
        """Waits for the answer to a request. Answers to others that come first are kept."""
        if deadline is None:
            deadline = time.monotonic() + self._timeout
        while True:
            method, answer = self._answers.get(number, (None, None))
            if method is None:
                raise Lost(f"request {number} was lost with its connection, or is answered already")
            if answer is not None:
                del self._answers[number]
                if "error" in answer:
                    raise Refused(method, answer["error"])
                return answer["result"]
            self._read(method, deadline)

    def events(self, idle=None, **params):
        """Watches, and yields event after event. Ends when nothing comes for `idle` seconds, if that is given.

        `bookmark`, `lagged` and `cursor_lost` are yielded as well, as objects of that one member's name in `type`; each of
        the last two is the end. Raises `Lost` when the connection ends, also where a call has made another since. Go on
        with `since=event["cursor"]`.
        """
        subscription = self.call("events.watch", **params)["subscription"]
        told = self._events[subscription] = []
        try:
            while True:
                while told:
                    message = told.pop(0)
                    if message["method"] in ("lagged", "cursor_lost"):
                        self._events.pop(subscription, None)
                    yield message["params"].get("event") or {"type": message["method"], **message["params"]}
                    if message["method"] in ("lagged", "cursor_lost"):
                        return
                if not self._is_watched(subscription, told):
                    raise Lost("events.watch: the connection ended, and the subscription with it")
                is_idle = idle is not None and idle <= _SILENCE_SECONDS
                try:
                    self._read("events.watch", time.monotonic() + (idle if is_idle else _SILENCE_SECONDS), is_due=False)
                except TimedOut:
                    if is_idle:
                        return
                    self.close()
                    raise Lost(f"events.watch: no sign of life for {_SILENCE_SECONDS} s") from None
        finally:
            self._unwatch(subscription, told)

    def _is_watched(self, subscription, told):
        """Is it this one still? Another connection counts its subscriptions anew."""
        return self._events.get(subscription) is told

    def _unwatch(self, subscription, told):
        """Ends a subscription without waiting for the answer: a generator may be dropped at any time, even while something else
        is read.
        """
        if not self._is_watched(subscription, told):
            return
        del self._events[subscription]
        try:
            self._answers.pop(self._send("events.unwatch", {"subscription": subscription}))
        except Lost:
            pass  # It ended with its connection.

    def _connected(self, method, deadline):
        if self._socket is None:
            failed = "no time was left"
            for tried, (host, port) in enumerate(self._servers):
                left = self._connect_timeout
                if deadline is not None:
                    # Those behind it have their share.
                    left = min(left, (deadline - time.monotonic()) / (len(self._servers) - tried))
                if left <= 0:
                    continue
                try:
                    self._socket = socket.create_connection((host, port), timeout=left)
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if len(self._servers) > 1:
                        self._show_life()
                    self._server = (host, port)
                    break
                # A name that cannot be one, such as `a..b`, is not even asked for.
                except (OSError, UnicodeError) as error:
                    failed = f"{host}:{port}: {error}"
                    self.close()
            else:
                raise NotSent(f"{method}: no server can be reached ({failed})")
        self._socket.settimeout(self._timeout)
        return self._socket

    def _note_waits(self):
        """While a call waits on the server's side the end of the connection, that of the program included, is a reset: at a
        mere end of input the server would go on waiting, and grant to nobody.
        """
        reset = struct.pack("ii", bool(self._waiting), 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    def _show_life(self):
        """Has the other side say something: connections are accepted for a process that hangs, too."""
        self._socket.sendall(_PING)
        while b"\n" not in self._received:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise OSError("the connection was closed")
            self._received += chunk
        line, _, rest = self._received.partition(b"\n")
        try:
            said = json.loads(line)
            refusal = said["error"]["message"] if said["id"] is None else None
        except (ValueError, TypeError, KeyError):
            raise OSError("it speaks something else") from None
        if refusal is not None:
            raise OSError(refusal)
        self._received = rest

    def _ask_for_life(self, deadline):
        """Where the last wait ended in silence, waits for a word before anything is asked: another server may be well."""
        if not self._silent or len(self._servers) < 2:
            return
        left = self._connect_timeout
        if deadline is not None:
            # The others have their share.
            left = min(left, (deadline - time.monotonic()) / (len(self._servers) + 1))
        until = time.monotonic() + left
        try:
            self._socket.settimeout(max(left, 0.001))
            self._socket.sendall(_PING)
            while self._silent:
                self._read("server.ping", until, is_due=False)
        except (OSError, Lost):
            self._leave()
        except TimedOut:
            if self._silent:
                self._leave()

    def _waited(self, method, seconds):
        """Nothing came for so long while an answer is due."""
        if sum(answer is None for _, answer in self._answers.values()) > _UNANSWERED_MAX:
            return
        before, self._silent = self._silent, self._silent + seconds
        if self._silent >= 2 * _LIFE_SECONDS:
            self._leave()
            raise Lost(f"{method}: no sign of life for {2 * _LIFE_SECONDS} s")
        if before < _LIFE_SECONDS <= self._silent:
            try:
                self._socket.settimeout(1)
                self._socket.sendall(_PING)
            except OSError as error:
                self._leave()
                raise Lost(f"{method}: {error}") from error

    def _leave(self):
        """Gives up the server to which the connection leads: the others come before it from now on."""
        self.close()
        self._servers.sort(key=lambda server: server == self._server)

    def _read(self, method, deadline, is_due=True):
        """Takes in what comes next: at least one message, or raises. Is an answer due, or may the server be silent?"""
        searched = 0
        while True:
            end = self._received.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._received[:end])
                del self._received[: end + 1]
                if line.strip():
                    self._deliver(self._message(method, line))
                return
            searched = len(self._received)
            if searched > _LINE_BYTES_MAX:
                self.close()
                raise TooLong(f"{method}: a line is longer than any answer")
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"{method}: no answer in time")
            if self._socket is None:
                raise Lost(f"{method}: the connection ended before the answer came")
            if is_due:
                # Until the next of the two times of which `_waited` takes note.
                until_then = _LIFE_SECONDS - self._silent
                left = min(left, max(until_then if until_then > 0 else until_then + _LIFE_SECONDS, 0.01))
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(1 << 16)
            except socket.timeout:
                if is_due:
                    self._waited(method, left)
                continue
            except OSError as error:
                self.close()
                raise Lost(f"{method}: {error}") from error
            if not chunk:
                self.close()
                raise Lost(f"{method}: the connection ended before the answer came")
            self._silent = 0.0
            self._received += chunk

    def _message(self, method, line):
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            is_told = "method" in message and isinstance(message.get("params"), dict)
            if is_told or isinstance(message.get("error"), dict) or "result" in message and message.get("id") is not None:
                return message
        self.close()
        raise Lost(f"{method}: the answer is no JSON-RPC: {line[:60]!r}")

    def _deliver(self, message):
        if "method" in message:
            told = self._events.get(message["params"].get("subscription"))
            # Some of one that nobody watches any more may still be under way.
            if told is not None:
                told.append(message)
            return
        number = message.get("id")
        if number is None:
            self.close()
            raise Refused("", message["error"])
        if number in self._waiting:
            self._waiting.remove(number)
            self._note_waits()
        if number in self._answers:
            self._answers[number] = (self._answers[number][0], message)


def _address(text):
    host, _, port = text.rpartition(":")
    # Other digits than these are digits, too; and of a larger number the system takes the rest.
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5) or not 0 < int(port) < 65536:
        raise ValueError(f"`{text}` is not the address of a server: that is a host and a port, for example 127.0.0.1:7400")
    return host.strip("[]"), int(port)
