// SPDX-License-Identifier: Apache-2.0
// A small client of Holdfast's cell: a session, and locks. It needs Node.js 20 and nothing else.
//
//   const session = await Session.open(["http://a:7433", "http://b:7433", "http://c:7433"]);
//   const lock = await session.acquire("reports/nightly", { wait: 60 });
//   lock.check(); // before each step of the work: throws Lost
//   await save(report, lock.token);
//   await lock.release();
//   await session.close();
//
// Copy this file. docs/cell-api.md explains the calls and the rules that it follows.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const cut = 20; // seconds that a waiting call is parked until it is made again: a member may be silent
const patience = 5; // seconds for a call that is not parked

// The monotonic clock of Node.js stands still while the host is suspended, and the wall clock may be
// set. Whichever says that more time has passed is believed: so nothing is trusted for too long.
const now = () => ({ steady: performance.now(), wall: Date.now() });
const since = (then) => Math.max(performance.now() - then.steady, Date.now() - then.wall) / 1000;

const seconds = (text) => parseFloat(text ?? "0");
const max = (a, b) => (a > b ? a : b);

/** The cell has refused what was asked, for a reason such as "REASON_HELD". */
export class CellError extends Error {
  constructor(answer) {
    super(`${answer.code}: ${answer.message}`);
    this.reason = answer.details?.[0]?.debug?.reason ?? "REASON_UNSPECIFIED";
  }
}

/** No member has answered. What was asked may have been done. */
export class Unanswered extends Error {}

/** The lock is not held any more, or cannot be trusted to be. */
export class Lost extends Error {}

/** The members of a cell. A call goes to one of them, and the next one to another if that fails. */
class Cell {
  #at = 0;

  constructor(members, token) {
    this.members = members;
    this.headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  }

  #leave(at) {
    if (this.#at === at) this.#at = (at + 1) % this.members.length; // else another call has left it
  }

  /** Makes a call once, for so many seconds at most. Returns when it was sent, and the answer. */
  async once(method, request, timeout) {
    const at = this.#at, sent = now();
    const post = {
      method: "POST", headers: this.headers, body: JSON.stringify(request),
      signal: AbortSignal.timeout(Math.round(timeout * 1000)),
    };
    let status, answer;
    try {
      const response = await fetch(`${this.members[at]}/holdfast.cell.v1.${method}`, post);
      status = response.status;
      answer = await response.json();
    } catch (e) {
      this.#leave(at);
      throw new Unanswered(`${this.members[at]}: ${e}`, { cause: e });
    }
    if (answer.memberStopping || status >= 500 || status === 429) this.#leave(at);
    if (status >= 500 || status === 429) throw new Unanswered(`${this.members[at]}: ${answer.message}`);
    if (status !== 200) throw new CellError(answer);
    return { sent, answer };
  }

  /** Makes a call as long as it is wanted, until a member answers. Also returns how often it was made. */
  async call(method, request, wanted) {
    for (let tries = 1; ; tries++) {
      try {
        return { ...(await this.once(method, request, patience)), tries };
      } catch (e) {
        if (!(e instanceof Unanswered) || !wanted()) throw e;
        await this.rest(tries);
      }
    }
  }

  /** Pauses after failures: not for the first ones, because other members are asked then. */
  async rest(failures) {
    const rounds = Math.floor(failures / this.members.length);
    if (rounds > 0) await sleep(50 * 2 ** Math.min(rounds, 3));
  }
}

/** A session, kept alive until it is closed or lost. Work that blocks the event loop delays that. */
export class Session {
  #cell; #session; #ttl; #cursor;
  #sent; // the session is trusted
  #valid = 0; // for so many seconds after #sent
  #over; // why the session has ended
  #locks = new Map(); // by their request ids, also those that are being acquired

  /** Opens a session. Options are ttl and lockDelay (in seconds), note, and token. */
  static async open(members, { ttl = 30, lockDelay = 0, note = "", token } = {}) {
    const s = new Session();
    s.#cell = new Cell(members, token);
    s.#sent = now();
    const request = { ttl: `${ttl}s`, lockDelay: `${lockDelay}s`, note };
    const { sent, answer } = await s.#cell.call("Sessions/Open", request, () => since(s.#sent) < ttl);
    s.#session = answer.session;
    s.#ttl = seconds(answer.ttl);
    s.#cursor = answer.cursor;
    s.#extended(sent, answer.extendedAfter);
    s.#keepAlive().catch((e) => s.#end(`${e}`));
    return s;
  }

  // The TTL began when the member sent the extension: not before "sent" plus "after". A fiftieth is
  // for clocks that run at different rates, and for the time between a check and the act.
  #extended(sent, after) {
    const valid = seconds(after) + this.#ttl * 0.98;
    if (valid - since(sent) > this.#valid - since(this.#sent)) [this.#sent, this.#valid] = [sent, valid];
  }

  #end(why) {
    this.#over ??= why;
  }

  #trusted() {
    if (since(this.#sent) >= this.#valid) this.#end("no member has extended the session in time");
    return this.#over === undefined;
  }

  /** Throws Lost unless the session is alive and trusted. */
  check() {
    if (!this.#trusted()) throw new Lost(this.#over);
  }

  async #keepAlive() {
    for (let failures = 0; this.#trusted(); ) {
      const nonce = randomUUID();
      const request = { session: this.#session, cursor: this.#cursor, nonce };
      let sent, answer = {};
      try {
        ({ sent, answer } = await this.#cell.once("Sessions/KeepAlive", request, this.#ttl * 0.6));
      } catch (e) {
        if (!(e instanceof Unanswered)) return this.#end(e.message);
      }
      const mine = answer.nonce === nonce;
      if (mine) this.#take(sent, answer);
      failures = mine && !answer.memberStopping ? 0 : failures + 1;
      await this.#cell.rest(failures);
    }
  }

  /** Takes in what an answer tells: losses first, so that a lock that is gone is not trusted. */
  #take(sent, answer) {
    for (const { lost } of answer.events ?? []) {
      this.#locks.get(lost?.request)?.gone(BigInt(lost.revision));
    }
    if (answer.complete) {
      const there = new Map((answer.holdings ?? []).map((h) => [h.request, BigInt(h.revision) - 1n]));
      for (const [request, lock] of this.#locks) { // what it had before is gone
        lock.gone(there.get(request) ?? BigInt(answer.revision));
      }
    }
    this.#cursor = answer.cursor || this.#cursor;
    if (answer.session) this.#extended(sent, answer.session.after);
  }

  /**
   * Waits for a lock, for so many seconds at most. Returns it, or null if somebody else has it. More
   * options are fields of AcquireRequest, such as mode: "MODE_SHARED".
   */
  async acquire(name, { wait = 0, ...options } = {}) {
    const lock = new Lock(this, name);
    this.#locks.set(lock.request, lock);
    try {
      const answer = await this.#acquire(lock, wait, options);
      lock.granted(answer);
      return lock;
    } catch (e) {
      try { // a call that got no answer may arrive yet: the cell is told that the request is over
        if (lock.unsure) await this.release(lock);
      } finally {
        this.#locks.delete(lock.request);
      }
      if (e.reason === "REASON_HELD") return null;
      throw e;
    }
  }

  async #acquire(lock, wait, options) {
    const begin = now();
    for (let failures = 0; ; ) {
      this.check();
      const left = Math.max(wait - since(begin), 0), asked = now();
      const request = {
        session: this.#session, name: lock.name, request: lock.request, wait: `${Math.min(left, 60).toFixed(3)}s`, ...options,
      };
      try { // the same request again finds its place, or its hold, at any member
        return (await this.#cell.once("Locks/Acquire", request, left > cut ? cut : left + patience)).answer;
      } catch (e) {
        if (!(e instanceof Unanswered)) throw e;
        lock.unsure = true;
        if (since(begin) > wait + patience) throw e;
        failures = since(asked) >= cut ? 0 : failures + 1;
        await this.#cell.rest(failures);
      }
    }
  }

  /** Releases a lock: use Lock.release. Returns whether it was held. */
  async release(lock) {
    const { name, request, token, unsure: retried } = lock;
    const { answer, tries } = await this.#cell.call(
      "Locks/Release", { session: this.#session, locks: [{ name, request, token: `${token}`, retried }] }, () => this.#trusted());
    this.#locks.delete(request);
    return tries > 1 || answer.outcomes[0] === "REASON_UNSPECIFIED"; // a second call finds what the first one did
  }

  /** Ends the session, and releases all that it has. */
  async close() {
    if (!this.#trusted()) return;
    this.#end("it was closed");
    const begin = now();
    await this.#cell.call("Sessions/Close", { session: this.#session }, () => since(begin) < patience)
      .catch(() => {}); // it ends with its TTL, or has ended
  }
}

/** A lock of a session. Its token, a BigInt, is larger than that of each holder before. */
class Lock {
  #revision = 0n; // of the hold
  #gone = 0n; // what the request had of this revision, and of those before, is gone
  token = 0n;
  request = randomUUID();
  unsure = false; // some call of the request got no answer

  constructor(session, name) {
    this.session = session;
    this.name = name;
  }

  granted(answer) {
    this.token = BigInt(answer.token);
    this.sequencer = answer.sequencer;
    this.#revision = BigInt(answer.revision);
  }

  gone(revision) {
    this.#gone = max(this.#gone, revision);
  }

  /** Throws Lost unless the lock is held and trusted. It asks nobody. */
  check() {
    this.session.check();
    if (this.#revision <= this.#gone) throw new Lost("the hold has been ended");
  }

  /** Releases the lock. Throws Lost if it was lost before. */
  async release() {
    this.check();
    const revision = this.#revision;
    this.gone(revision); // it is not held from here on
    let held;
    try {
      held = await this.session.release(this);
    } catch (e) {
      throw e instanceof CellError ? new Lost(e.message) : e;
    }
    if (!held) throw new Lost("the hold had been ended");
  }
}
