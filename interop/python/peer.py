"""A peer, redis-py's own Lock: see ../doc.go.

    peer.py HOST PORT
"""

import random
import sys
import time

import redis


class RedisPy:
    def __init__(self, client):
        self.client = client
        self.held = None

    def lock(self, name, ttl):
        held = self.client.lock(name, timeout=ttl / 1000)
        if not held.acquire(blocking=False):
            return False
        self.held = held
        return True

    def extend(self, ttl):
        try:
            return self.held.extend(ttl / 1000, replace_ttl=True)
        except redis.exceptions.LockError:
            return False

    def unlock(self):
        try:
            self.held.release()
            return True
        except redis.exceptions.LockError:
            return False

    def section(self, name, work):
        with self.client.lock(name, timeout=30, sleep=0.01):
            work()


def count(peer, name, file, times):
    def increment():
        with open(file, "r+") as f:
            number = int(f.read())
            time.sleep(0.002)
            f.seek(0)
            f.write(str(number + 1))

    for _ in range(times):
        peer.section(name, increment)
        time.sleep(random.uniform(0, 0.01))


def main():
    host, port = sys.argv[1:]
    client = redis.Redis(host=host, port=int(port), decode_responses=False)
    client.ping()
    peer = RedisPy(client)
    print("ready", flush=True)
    for line in sys.stdin:
        command, *args = line.split()
        if command == "lock":
            answer = "held" if peer.lock(args[0], int(args[1])) else "busy"
        elif command == "extend":
            answer = "ok" if peer.extend(int(args[0])) else "lost"
        elif command == "unlock":
            answer = "ok" if peer.unlock() else "lost"
        elif command == "count":
            count(peer, args[0], args[1], int(args[2]))
            answer = "ok"
        else:
            raise ValueError(line)
        print(answer, flush=True)


main()
