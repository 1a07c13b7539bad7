// A peer, node-redlock over ioredis: see ../doc.go.
//
//     peer.js HOST PORT
//
// Its modules are those of NODE_PATH.
'use strict';

const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const [host, port] = process.argv.slice(2);
const client = new Redis({ host, port: Number(port) });
client.on('error', fail);
const once = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: -1, retryDelay: 10, retryJitter: 5 });
let held = null;

function fail(err) {
  console.error(err);
  process.exit(1);
}

// succeeded reports whether a promise is kept; a lock that is refused or lost is a LockError.
async function succeeded(promise) {
  try {
    await promise;
    return true;
  } catch (err) {
    if (err.name === 'LockError') return false;
    throw err;
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function count(name, key, times) {
  for (let i = 0; i < times; i++) {
    const lock = await patient.lock(name, 30000);
    const number = Number((await client.get(key)) || 0);
    await pause(2);
    await client.set(key, number + 1);
    await lock.unlock();
    await pause(10 * Math.random());
  }
}

async function answer(command, args) {
  switch (command) {
    case 'lock':
      return (await succeeded(once.lock(args[0], Number(args[1])).then((l) => (held = l)))) ? 'held' : 'busy';
    case 'extend':
      return (await succeeded(held.extend(Number(args[0])))) ? 'ok' : 'lost';
    case 'unlock':
      return (await succeeded(held.unlock())) ? 'ok' : 'lost';
    case 'count':
      await count(args[0], args[1], Number(args[2]));
      return 'ok';
    case 'set':
      await client.set(args[0], args[1]);
      return 'ok';
  }
  throw new Error(`no command ${command}`);
}

async function main() {
  await client.ping();
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...args] = line.split(' ');
    console.log(await answer(command, args));
  }
  process.exit(0);
}

main().catch(fail);
