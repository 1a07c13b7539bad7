"""The peer of docs/cell-clients/holdfast_cell.py: see ../doc.go.

    cell_peer.py MEMBER,MEMBER… TTL_MS
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/cell-clients"))
from holdfast_cell import Lost, Session  # noqa: E402


def increment(path, token):
    with open(path, "r+", encoding="ascii") as file:
        number, last = map(int, file.read().split())
        if token <= last:
            raise RuntimeError("token %d after %d" % (token, last))
        file.seek(0)
        file.write("%d %d\n" % (number + 1, token))


def count(session, name, path, times):
    for _ in range(times):
        lock = session.acquire(name, wait=120)
        if lock is None:
            raise RuntimeError("did not get the lock")
        with lock:
            lock.check()
            increment(path, lock.token)


def main():
    members = ["http://" + m for m in sys.argv[1].split(",")]
    session = Session(members, ttl=int(sys.argv[2]) / 1000)
    lock = None
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        try:
            answer = "ok"
            if words[0] == "lock":
                taken = session.acquire(words[1], wait=int(words[2]) / 1000)
                lock = taken or lock
                answer = "held" if taken else "busy"
            elif words[0] == "check":
                lock.check()
            elif words[0] == "unlock":
                lock.release()
            elif words[0] == "count":
                count(session, words[1], words[2], int(words[3]))
        except Lost as e:
            answer = "lost: %s" % e
        print(answer, flush=True)
    session.close()


main()
