<?php
// Uses a server at $argv[1]:$argv[2] as a program with php-memcached would.

function check($what, $got, $want) {
    if ($got !== $want) {
        fwrite(STDERR, "$what: got " . var_export($got, true) . ", want " . var_export($want, true) . "\n");
        exit(1);
    }
}

$m = new Memcached();
$m->setOption(Memcached::OPT_BINARY_PROTOCOL, false);
$m->setOption(Memcached::OPT_COMPRESSION, true);
$m->addServer($argv[1], (int)$argv[2]);

check('get of a miss', $m->get('miss'), false);
check('its code', $m->getResultCode(), Memcached::RES_NOTFOUND);
check('set', $m->set('k', ['a' => 1, 'b' => [2.5, null, 'x']]), true);
check('get', $m->get('k'), ['a' => 1, 'b' => [2.5, null, 'x']]);
check('set of an integer', $m->set('n', 10), true);
check('get of an integer', $m->get('n'), 10);
check('increment', $m->increment('n', 5), 15);
check('decrement', $m->decrement('n', 20), 0);
check('set of a long text', $m->set('long', str_repeat('text ', 50000)), true);
check('get of a long text', $m->get('long'), str_repeat('text ', 50000));

check('add', $m->add('k', 1), false);
check('its code', $m->getResultCode(), Memcached::RES_NOTSTORED);
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

$versions = array_values($m->getVersion());
check('version', strncmp($versions[0], '1.6.', 4), 0);
$stats = array_values($m->getStats());
check('stats', $stats[0]['curr_items'] > 0, true);
check('flush', $m->flush(), true);
check('get after flush', $m->get('n'), false);
echo "php-memcached: ok\n";
