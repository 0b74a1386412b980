// Finds the nodes of a cluster through the node at process.argv[2], as programs
// with auto-discovery clients would: ecad and memcached-elasticache. Writes each
// list of nodes on a line; the values that the second one stores are read back.
'use strict';

const endpoint = process.argv[2];
const Ecad = require('ecad');
const Memcached = require('memcached-elasticache');

function fail(err) {
  console.error(err);
  process.exit(1);
}

new Ecad({ endpoints: [endpoint] }).fetch((err, hosts) => {
  if (err) fail(err);
  console.log('ecad ' + hosts.sort().join(' '));

  const client = new Memcached(endpoint, { autoDiscover: true });
  client.on('autoDiscoverFailure', fail);
  client.on('autoDiscover', (nodes) => {
    console.log('memcached-elasticache ' + nodes.slice().sort().join(' '));
    let left = 100;
    for (let i = 0; i < 100; i++) {
      client.set('found' + i, 'value' + i, 100, (err) => {
        if (err) fail(err);
        client.get('found' + i, (err, value) => {
          if (err || value !== 'value' + i) fail(err || value);
          if (--left === 0) client.end();
        });
      });
    }
  });
});
