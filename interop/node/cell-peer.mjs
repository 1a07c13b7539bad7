// The peer of docs/cell-clients/holdfast-cell.mjs: see ../doc.go.
//
//	node cell-peer.mjs MEMBER,MEMBER… TTL_MS

import { readFileSync, openSync, writeSync, closeSync } from "node:fs";
import { createInterface } from "node:readline";
import { Lost, Session } from "../../docs/cell-clients/holdfast-cell.mjs";

function increment(path, token) {
  const [number, last] = readFileSync(path, "ascii").split(" ").map(BigInt);
  if (token <= last) throw new Error(`token ${token} after ${last}`);
  const file = openSync(path, "r+");
  writeSync(file, `${number + 1n} ${token}\n`);
  closeSync(file);
}

async function count(session, name, path, times) {
  for (let i = 0; i < times; i++) {
    const lock = await session.acquire(name, { wait: 120 });
    if (lock === null) throw new Error("did not get the lock");
    lock.check();
    increment(path, lock.token);
    await lock.release();
  }
}

const members = process.argv[2].split(",").map((m) => `http://${m}`);
const session = await Session.open(members, { ttl: Number(process.argv[3]) / 1000 });
let lock;

async function run([command, name, ...args]) {
  switch (command) {
    case "lock": {
      const taken = await session.acquire(name, { wait: Number(args[0]) / 1000 });
      lock = taken ?? lock;
      return taken ? "held" : "busy";
    }
    case "check":
      lock.check();
      return "ok";
    case "unlock":
      await lock.release();
      return "ok";
    case "count":
      await count(session, name, args[0], Number(args[1]));
      return "ok";
  }
  throw new Error(`unknown command ${command}`);
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(await run(line.split(" ")));
  } catch (e) {
    if (!(e instanceof Lost)) throw e;
    console.log(`lost: ${e.message}`);
  }
}
await session.close();
