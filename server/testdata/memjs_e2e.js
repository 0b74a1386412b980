// Uses a server as a program with memjs would, which speaks the binary protocol
// alone. (Its prepend appends, whatever the server.) Argument: the server,
// host:port. Any difference ends it with a line.
'use strict';
const readline = require('readline');
const memjs = require('memjs');

const check = (what, got, want) => {
  const show = (v) => JSON.stringify(v === undefined ? null : v).slice(0, 80);
  if (show(got) !== show(want)) throw new Error(`${what}: got ${show(got)}, want ${show(want)}`);
};

const fails = async (what, promise) => {
  try {
    await promise;
  } catch (e) {
    return;
  }
  throw new Error(`${what}: no error`);
};

const answers = readline.createInterface({ input: process.stdin });
const ask = (line) => new Promise((done) => {
  answers.once('line', done);
  console.log(line);
});

const text = async (client, key) => {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
};

// With a user in the environment the server wants a login.
const connect = (address) => memjs.Client.create(address, {
  username: process.env.QUARRY_USER,
  password: process.env.QUARRY_PASSWORD,
  timeout: 10,
  retries: 1,
  logger: { log() {} },
});

async function main() {
  const address = process.argv[2];
  const c = connect(address);

  check('get of a miss', await text(c, 'miss'), null);
  check('set', await c.set('k', 'one', {}), true);
  check('get', await text(c, 'k'), 'one');
  check('add over an item', await c.add('k', 'x', {}), false);
  check('add', await c.add('l', 'new', {}), true);
  check('replace of a miss', await c.replace('miss', 'x', {}), false);
  check('replace', await c.replace('k', 'two', {}), true);
  check('append', await c.append('k', '+'), true);
  await fails('append to a miss', c.append('miss', '+'));
  check('get', await text(c, 'k'), 'two+');
  check('delete', await c.delete('k'), true);
  check('delete again', await c.delete('k'), false);

  check('increment with an initial number', (await c.increment('n', 1, { initial: 10 })).value, 10);
  check('increment', (await c.increment('n', 5, {})).value, 15);
  check('decrement', (await c.decrement('n', 20, {})).value, 0);

  // Many at once on one connection: each reply finds its request.
  const keys = Array.from({ length: 500 }, (_, i) => `many-${i}`);
  await Promise.all(keys.map((key) => c.set(key, key, { expires: 1000 })));
  const many = await Promise.all(keys.map((key) => text(c, key)));
  check('get of many', many.filter((value, i) => value !== keys[i]), []);

  check('set with a time', await c.set('t', 'x', { expires: 100 }), true);
  check('set', await c.set('kept', 'x', { expires: 100 }), true);
  check('touch', await c.touch('kept', 1000), true);
  check('touch of a miss', await c.touch('miss', 1000), false);
  await ask('advance 101');
  check('get of an expired item', await text(c, 't'), null);
  check('get of one that was touched', await text(c, 'kept'), 'x');
  await ask('advance 1000');
  check('get of one that was touched', await text(c, 'kept'), null);

  const large = Buffer.alloc(1000000, '0123456789abcdef');
  check('set of a large value', await c.set('large', large, {}), true);
  check('get of a large value', (await c.get('large')).value.equals(large), true);
  await fails('set over the limit', c.set('large', Buffer.alloc(2 << 20), {}));
  const key = 'k'.repeat(250);
  check('set with the longest key', await c.set(key, 'x', {}), true);
  check('get with the longest key', await text(c, key), 'x');

  const stats = await new Promise((done, failed) => c.stats((err, _, figures) => (err ? failed(err) : done(figures))));
  check('curr_items', stats.curr_items > 0, true);
  check('flush', (await c.flush())[address], true);
  check('get after flush', await text(c, 'n'), null);

  // What was cached is gone with the server; the client finds the next one.
  check('set', await c.set('before', 'x', {}), true);
  await ask('restart');
  for (let i = 0; i < 200; i++) {
    try {
      check('set', await c.set('after', 'x', {}), true);
      break;
    } catch (e) {
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  check('get of what the server took with it', await text(c, 'before'), null);
  check('get from the new server', await text(c, 'after'), 'x');
  c.close();

  await fails('get without a server', connect('127.0.0.1:1').get('k'));
  console.log('ok');
  process.exit(0);
}

main().catch((e) => {
  console.error(e.stack);
  process.exit(1);
});
