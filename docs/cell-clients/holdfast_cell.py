# SPDX-License-Identifier: Apache-2.0
"""A small client of Holdfast's cell: a session, and locks. It needs Python's standard library only.

    with Session(["http://a:7433", "http://b:7433", "http://c:7433"]) as session:
        with session.acquire("reports/nightly", wait=60) as lock:
            lock.check()  # before each step of the work: raises Lost
            save(report, token=lock.token)

Copy this file. docs/cell-api.md explains the calls and the rules that it follows.
"""

import http.client
import json
import secrets
import threading
import time
import urllib.parse

# A clock that nobody sets, and that counts the time for which the host is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CUT = 20.0  # seconds that a waiting call is parked until it is made again: a member may be silent
_PATIENCE = 5.0  # seconds for a call that is not parked
_LARGEST = 64 << 20  # bytes of an answer


def _now():
    return time.clock_gettime(_CLOCK)


def _seconds(text):
    return float((text or "0s").rstrip("s"))


class CellError(Exception):
    """The cell has refused what was asked, for a reason such as "REASON_HELD"."""

    def __init__(self, answer):
        super().__init__("%s: %s" % (answer.get("code"), answer.get("message")))
        details = answer.get("details") or [{}]
        self.reason = details[0].get("debug", {}).get("reason", "REASON_UNSPECIFIED")


class Unanswered(Exception):
    """No member has answered. What was asked may have been done."""


class Lost(Exception):
    """The lock is not held any more, or cannot be trusted to be."""


class Cell:
    """The members of a cell. A call goes to one of them, and the next one to another if that fails."""

    def __init__(self, members, token=None, tls=None):
        self.members, self.tls = [urllib.parse.urlsplit(m) for m in members], tls
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = "Bearer " + token
        self.at = 0

    def leave(self, at):
        if self.at == at:  # otherwise another thread has left it
            self.at = (at + 1) % len(self.members)

    def once(self, method, request, timeout):
        """Makes a call once. Returns when it was sent, and the answer."""
        at, sent = self.at, _now()
        try:
            status, answer = self._post(self.members[at], method, request, timeout)
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.leave(at)
            raise Unanswered("%s: %r" % (self.members[at].netloc, e)) from e
        if answer.get("memberStopping") or status >= 500 or status == 429:
            self.leave(at)
        if status >= 500 or status == 429:
            raise Unanswered("%s: %s" % (self.members[at].netloc, answer.get("message")))
        if status != 200:
            raise CellError(answer)
        return sent, answer

    def _post(self, member, method, request, timeout):
        if member.scheme == "https":
            connection = http.client.HTTPSConnection(member.netloc, timeout=min(timeout, 2), context=self.tls)
        else:
            connection = http.client.HTTPConnection(member.netloc, timeout=min(timeout, 2))
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
            connection.request("POST", "/holdfast.cell.v1." + method, json.dumps(request), self.headers)
            response = connection.getresponse()
            answer = json.loads(response.read(_LARGEST))
            if not isinstance(answer, dict):
                raise ValueError("the answer is no JSON object")
            return response.status, answer
        finally:
            connection.close()

    def call(self, method, request, until):
        """Makes a call until a member answers, or the time has come. Also returns how often it was made."""
        tries = 0
        while True:
            tries += 1
            try:
                return *self.once(method, request, _PATIENCE), tries
            except Unanswered:
                if _now() >= until():
                    raise
                self.rest(tries)

    def rest(self, failures):
        """Pauses after failures: not for the first ones, because other members are asked then."""
        rounds = failures // len(self.members)
        if rounds:
            time.sleep(0.05 * 2 ** min(rounds, 3))


class Session:
    """A session, which a thread keeps alive until it is closed or lost. Threads may share it."""

    def __init__(self, members, ttl=30, lock_delay=0, note="", token=None, tls=None):
        self._cell = Cell(members, token, tls)
        request = {"ttl": "%.3fs" % ttl, "lockDelay": "%.3fs" % lock_delay, "note": note}
        end = _now() + ttl
        sent, answer, _ = self._cell.call("Sessions/Open", request, lambda: end)
        self._session, self._cursor = answer["session"], answer.get("cursor", "")
        self._ttl = _seconds(answer["ttl"])
        self._mutex = threading.RLock()
        self._locks = {}  # by their request ids, also those that are being acquired
        self._over = None  # why the session has ended
        self._until = 0.0  # until when it may be trusted
        self._extended(sent, answer.get("extendedAfter"))
        threading.Thread(target=self._keep_alive, name="holdfast session", daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _extended(self, sent, after):
        # The TTL began when the member sent the extension: not before "sent" plus "after". A fiftieth
        # is for clocks that run at different rates, and for the time between a check and the act.
        self._until = max(self._until, sent + _seconds(after) + self._ttl * 0.98)

    def _end(self, why):
        with self._mutex:
            self._over = self._over or why

    def check(self):
        """Raises Lost unless the session is alive and trusted."""
        with self._mutex:
            if self._over is None and _now() >= self._until:
                self._over = "no member has extended the session in time"
            if self._over is not None:
                raise Lost(self._over)

    def _trusted_until(self):
        with self._mutex:
            return self._until if self._over is None else 0

    def _keep_alive(self):
        failures = 0
        while _now() < self._trusted_until():
            nonce = secrets.token_hex(8)
            request = {"session": self._session, "cursor": self._cursor, "nonce": nonce}
            try:
                sent, answer = self._cell.once("Sessions/KeepAlive", request, self._ttl * 0.6)
            except Unanswered:
                answer = {}
            except CellError as e:
                self._end(str(e))
                return
            mine = answer.get("nonce") == nonce
            if mine:
                self._take(sent, answer)
            failures = 0 if mine and not answer.get("memberStopping") else failures + 1
            self._cell.rest(failures)

    def _take(self, sent, answer):
        """Takes in what an answer tells: losses first, so that a lock that is gone is not trusted."""
        with self._mutex:
            for event in answer.get("events", []):
                lock = self._locks.get(event.get("lost", {}).get("request"))
                if lock is not None:
                    lock._gone = max(lock._gone, int(event["lost"]["revision"]))
            if answer.get("complete"):
                there = {h["request"]: int(h["revision"]) for h in answer.get("holdings", [])}
                for request, lock in self._locks.items():  # what it had before is gone
                    lock._gone = max(lock._gone, there.get(request, int(answer["revision"]) + 1) - 1)
            self._cursor = answer.get("cursor") or self._cursor
            if "session" in answer:
                self._extended(sent, answer["session"].get("after"))

    def acquire(self, name, wait=0.0, **options):
        """Waits for a lock, for so many seconds at most. Returns it, or None if somebody else has it.

        Options are fields of AcquireRequest, such as mode="MODE_SHARED".
        """
        lock = Lock(self, name, secrets.token_hex(8))
        with self._mutex:
            self._locks[lock.request] = lock
        try:
            answer = self._acquire(lock, _now() + wait, options)
        except BaseException:
            self._withdraw(lock)
            raise
        if answer is None:
            self._withdraw(lock)
            return None
        with self._mutex:
            lock.token, lock.sequencer = int(answer["token"]), answer["sequencer"]
            lock._revision = int(answer["revision"])
        return lock

    def _acquire(self, lock, end, options):
        failures = 0
        while True:
            self.check()
            left = max(end - _now(), 0)
            request = {"session": self._session, "name": lock.name, "request": lock.request,
                       "wait": "%.3fs" % min(left, 60), **options}
            asked, unsure, lock._unsure = _now(), lock._unsure, True
            try:  # the same request again finds its place, or its hold, at any member
                answer = self._cell.once("Locks/Acquire", request, _CUT if left > _CUT else left + _PATIENCE)[1]
                lock._unsure = unsure
                return answer
            except CellError as e:
                lock._unsure = unsure
                if e.reason == "REASON_HELD":
                    return None
                raise
            except Unanswered:
                failures = 0 if _now() - asked >= _CUT else failures + 1
                if _now() >= end + _PATIENCE:
                    raise
                self._cell.rest(failures)

    def _withdraw(self, lock):
        """Gives up a request. If some call of it got no answer, that may arrive yet: the cell is told."""
        try:
            if lock._unsure:
                self._release(lock)
        finally:
            with self._mutex:
                self._locks.pop(lock.request, None)

    def _release(self, lock):
        request = {"session": self._session, "locks": [{
            "name": lock.name, "request": lock.request, "token": str(lock.token), "retried": lock._unsure}]}
        return self._cell.call("Locks/Release", request, self._trusted_until)

    def close(self):
        """Ends the session, and releases all that it has."""
        with self._mutex:
            over, self._over = self._over, self._over or "it was closed"
        if over is None:
            end = _now() + _PATIENCE
            try:
                self._cell.call("Sessions/Close", {"session": self._session}, lambda: end)
            except (Unanswered, CellError):
                pass  # it ends with its TTL, or has ended


class Lock:
    """A lock of a session. Its token is larger than that of each holder before."""

    def __init__(self, session, name, request):
        self.session, self.name, self.request = session, name, request
        self.token, self.sequencer = 0, ""
        self._revision = 0  # of the hold
        self._gone = 0  # what the request had of this revision, and of those before, is gone
        self._unsure = False  # some call of the request got no answer

    def check(self):
        """Raises Lost unless the lock is held and trusted. It asks nobody."""
        self.session.check()
        with self.session._mutex:
            if self._revision <= self._gone:
                raise Lost("the hold has been ended")

    def release(self):
        """Releases the lock. Raises Lost if it was lost before."""
        try:
            self.check()
            _, answer, tries = self.session._release(self)
        except CellError as e:
            raise Lost(str(e)) from e
        finally:
            with self.session._mutex:
                self.session._locks.pop(self.request, None)
                self._gone = self._revision
        if tries == 1 and answer["outcomes"] != ["REASON_UNSPECIFIED"]:
            raise Lost(answer["outcomes"][0])  # of a second call it would be the first one's doing

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.release()
        except (Lost, Unanswered, CellError):
            if kind is None:
                raise
