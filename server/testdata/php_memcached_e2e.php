<?php
// Uses a server as a program with php-memcached would. Arguments: text or
// binary, and the server (host:port, or the path of a unix socket). Any
// difference ends it with a line.

function check($what, $got, $want) {
    if ($got !== $want) {
        fwrite(STDERR, "$what: got " . substr(var_export($got, true), 0, 80) . ", want " . substr(var_export($want, true), 0, 80) . "\n");
        exit(1);
    }
}

function ask($line) {
    echo "$line\n";
    fgets(STDIN);
}

function connect($address, $binary) {
    $m = new Memcached();
    $m->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $m->setOption(Memcached::OPT_COMPRESSION, true);
    if (getenv('QUARRY_USER') !== false) { // the server wants a login
        $m->setSaslAuthData(getenv('QUARRY_USER'), getenv('QUARRY_PASSWORD'));
    }
    $m->setOption(Memcached::OPT_RETRY_TIMEOUT, 1);
    if ($address[0] === '/') {
        $m->addServer($address, 0);
    } else {
        list($host, $port) = explode(':', $address);
        $m->addServer($host, (int)$port);
    }
    return $m;
}

$binary = $argv[1] === 'binary';
$m = connect($argv[2], $binary);

check('get of a miss', $m->get('miss'), false);
check('its code', $m->getResultCode(), Memcached::RES_NOTFOUND);
check('set', $m->set('k', ['a' => 1, 'b' => [2.5, null, 'x']]), true);
check('get', $m->get('k'), ['a' => 1, 'b' => [2.5, null, 'x']]);
check('set of an integer', $m->set('n', 10), true);
check('get of an integer', $m->get('n'), 10);
check('increment', $m->increment('n', 5), 15);
check('decrement', $m->decrement('n', 20), 0);
check('increment of a miss', $m->increment('miss'), false);
check('its code', $m->getResultCode(), Memcached::RES_NOTFOUND);
if ($binary) {
    check('increment with an initial number', $m->increment('fresh', 1, 7), 7);
    check('increment', $m->increment('fresh', 1, 7), 8);
}
check('set of a long text', $m->set('long', str_repeat('text ', 50000)), true);
check('get of a long text', $m->get('long'), str_repeat('text ', 50000));

check('add', $m->add('k', 1), false);
check('its code', $m->getResultCode(), $binary ? Memcached::RES_DATA_EXISTS : Memcached::RES_NOTSTORED);
check('replace of a miss', $m->replace('miss', 1), false);
$m->setOption(Memcached::OPT_COMPRESSION, false);
check('set', $m->set('s', 'b'), true);
check('append', $m->append('s', 'c'), true);
check('prepend', $m->prepend('s', 'a'), true);
check('get', $m->get('s'), 'abc');

$got = $m->get('s', null, Memcached::GET_EXTENDED);
check('cas', $m->cas($got['cas'], 's', 'new'), true);
check('cas again', $m->cas($got['cas'], 's', 'newer'), false);
check('its code', $m->getResultCode(), Memcached::RES_DATA_EXISTS);

$many = [];
for ($i = 0; $i < 300; $i++) {
    $many["many-$i"] = "value $i";
}
check('setMulti', $m->setMulti($many, 1000), true);
check('getMulti', $m->getMulti(array_keys($many)), $many);
check('touch', $m->touch('many-1', 2000), true);
check('delete', $m->delete('many-1'), true);
check('delete again', $m->delete('many-1'), false);
check('deleteMulti', $m->deleteMulti(['many-2', 'many-1']), ['many-2' => true, 'many-1' => Memcached::RES_NOTFOUND]);

check('set with a time', $m->set('t', 'x', 100), true);
check('set with a date', $m->set('at', 'x', time() + 3600), true);
check('set', $m->set('kept', 'x', 100), true);
check('touch', $m->touch('kept', 1000), true);
ask('advance 101');
check('get of an expired item', $m->get('t'), false);
check('get of those that are not', count($m->getMulti(['t', 'at', 'kept'])), 2);
ask('advance 4000');
check('get of many that are expired', $m->getMulti(['t', 'at', 'kept']), []);

$large = random_bytes(1000000);
check('set of a large value', $m->set('large', $large), true);
check('get of a large value', $m->get('large') === $large, true);
check('set over the limit', $m->set('large', str_repeat('x', 2 << 20)), false);
check('its code', $m->getResultCode(), Memcached::RES_E2BIG);
check('get of what did not fit', $m->get('large'), false);
$key = str_repeat('k', 250);
check('set with the longest key', $m->set($key, 'x'), true);
check('get with the longest key', $m->get($key), 'x');
check('set with a longer key', $m->set("k$key", 'x'), false);
check('its code', $m->getResultCode(), Memcached::RES_BAD_KEY_PROVIDED);

$versions = array_values($m->getVersion());
check('version', strncmp($versions[0], '1.6.', 4), 0);
$stats = array_values($m->getStats());
check('stats', $stats[0]['curr_items'] > 0, true);
check('flush', $m->flush(), true);
check('get after flush', $m->get('n'), false);

// What was cached is gone with the server; the client finds the next one.
check('set', $m->set('before', 'x'), true);
ask('restart');
for ($i = 0; $i < 200; $i++) {
    check('get of what the server took with it', $m->get('before'), false);
    if ($m->set('after', 'x')) {
        break;
    }
    usleep(50000);
}
check('get from the new server', $m->get('after'), 'x');

// Nobody is there: an error, not a miss.
$nobody = connect($argv[2][0] === '/' ? $argv[2] . '-gone' : '127.0.0.1:1', $binary);
check('get without a server', $nobody->get('k'), false);
check('its code', $nobody->getResultCode() !== Memcached::RES_NOTFOUND, true);
echo "ok\n";
