# Uses a server as a program with Cache::Memcached, or with Cache::Memcached::Fast,
# would. Arguments: the module, and the server (host:port, or the path of a unix
# socket). Any difference ends it with a line.
use strict;
use warnings;
use Time::HiRes qw(sleep time);

my ($module, $address) = @ARGV;
my $fast = $module eq 'Cache::Memcached::Fast';
eval "use $module; 1" or die $@;
$| = 1;

sub show { my ($v) = @_; defined $v ? "'" . substr($v, 0, 60) . "'" : 'undef' }

sub check {
    my ($what, $got, $want) = @_;
    return if defined $got && defined $want ? $got eq $want : !defined $got && !defined $want;
    my (undef, undef, $line) = caller;
    die "$what (line $line): got " . show($got) . ', want ' . show($want) . "\n";
}

sub yes { my ($what, $got) = @_; check($what, $got ? 1 : 0, 1) }
sub nope { my ($what, $got) = @_; check($what, $got ? 1 : 0, 0) }

sub ask { print "$_[0]\n"; scalar <STDIN> }

my $c = $module->new({ servers => [$address], compress_threshold => 100_000, max_size => 4 << 20 });

nope 'get of a miss', $c->get('miss');
yes 'set', $c->set('k', 'one');
check 'get', $c->get('k'), 'one';
nope 'add over an item', $c->add('k', 'x');
yes 'add', $c->add('l', 'new');
nope 'replace of a miss', $c->replace('miss', 'x');
yes 'replace', $c->replace('k', 'two');
yes 'append', $c->append('k', '+');
yes 'prepend', $c->prepend('k', '-');
nope 'append to a miss', $c->append('miss', '+');
check 'get', $c->get('k'), '-two+';
yes 'set of nothing', $c->set('empty', '');
check 'get of nothing', $c->get('empty'), '';
yes 'delete', $c->delete('k');
nope 'delete again', $c->delete('k');

# References are frozen, which the client flags say.
yes 'set of a structure', $c->set('typed', { a => [1, undef, 'x'] });
check 'get of a structure', $c->get('typed')->{a}[2], 'x';

if ($fast) {
    yes 'set', $c->set('c', '1');
    my $held = $c->gets('c');
    check 'gets', $held->[1], '1';
    yes 'cas', $c->cas('c', $held->[0], '2');
    nope 'cas again', $c->cas('c', $held->[0], '3');
    check 'get', $c->get('c'), '2';
    nope 'cas of a miss', $c->cas('miss', $held->[0], '3');
    check 'gets of many', scalar(keys %{ $c->gets_multi('c', 'l', 'miss') }), 2;
}

yes 'set of a number', $c->set('n', 10);
check 'incr', $c->incr('n', 5), 15;
check 'decr', $c->decr('n', 20) + 0, 0;
check 'incr', $c->incr('n', 4294967296), 4294967296;
nope 'incr of a miss', $c->incr('miss', 1);
yes 'set of a text', $c->set('text', 'abc');
nope 'incr of a text', $c->incr('text', 1);
check 'get', $c->get('text'), 'abc';

my %many = map { ("many-$_" => "value $_") } 1 .. 500;
if ($fast) {
    my $stored = $c->set_multi(map { [$_, $many{$_}, 1000] } sort keys %many);
    yes "set of $_", $stored->{$_} for keys %many;
} else {
    yes "set of $_", $c->set($_, $many{$_}, 1000) for keys %many;
}
my $got = $c->get_multi(keys %many, 'miss');
check 'get of many', scalar(keys %$got), 500;
check "get of $_", $got->{$_}, $many{$_} for keys %many;

# Replies that nobody asked for must not come.
$c->set("quiet-$_", $_) for 1 .. 500;
check 'get after sets in void context', $c->get('quiet-500'), 500;
$c->delete('quiet-1');
check 'get after delete in void context', $c->get('quiet-1'), undef;

yes 'set with a time', $c->set('t', 'x', 100);
yes 'set with a date', $c->set('at', 'x', int(time) + 3600);
if ($fast) {
    yes 'set', $c->set('kept', 'x', 100);
    yes 'touch', $c->touch('kept', 1000);
    nope 'touch of a miss', $c->touch('miss', 1000);
    check 'gat', $c->gat(1000, 'l'), 'new';
    check 'gat of a miss', $c->gat(1000, 'miss'), undef;
    check 'gats', $c->gats(1000, 'l')->[1], 'new';
}
ask 'advance 101';
check 'get of an expired item', $c->get('t'), undef;
check 'get of one that is not', $c->get('at'), 'x';
check 'get of one that was touched', $c->get('kept'), $fast ? 'x' : undef;
ask 'advance 4000';
check 'get of an expired item', $c->get('at'), undef;
check 'get of one that was touched', $c->get('kept'), undef;

my $large = pack('N*', map { $_ * 2654435761 % 4294967296 } 1 .. 250_000);
$c->enable_compress(0);
yes 'set of a large value', $c->set('large', $large);
yes 'get of a large value', $c->get('large') eq $large;
nope 'set over the limit', $c->set('large', 'x' x (2 << 20));
check 'get of what did not fit', $c->get('large'), undef;
$c->enable_compress(1);
yes 'set of what is compressed', $c->set('zipped', 'text ' x 400_000);
yes 'get of what is compressed', $c->get('zipped') eq 'text ' x 400_000;
my $key = 'k' x 250;
yes 'set with the longest key', $c->set($key, 'x');
check 'get with the longest key', $c->get($key), 'x';

if ($fast) {
    my ($version) = values %{ $c->server_versions };
    yes 'version', $version =~ /^1\.6\./;
} else {
    my $stats = $c->stats(['misc', 'malloc', 'sizes'])->{hosts}{$address};
    yes 'curr_items', $stats->{misc}{curr_items} > 0;
    yes 'cmd_set', $stats->{misc}{cmd_set} > 0;
}
yes 'set', $c->set('n', 1);
yes 'flush', $c->flush_all;
check 'get after flush', $c->get('n'), undef;

# What was cached is gone with the server; the client finds the next one.
yes 'set', $c->set('before', 'x');
ask 'restart';
for (1 .. 200) {
    check 'get of what the server took with it', $c->get('before'), undef;
    last if $c->set('after', 'x');
    $c->forget_dead_hosts if !$fast;
    sleep 0.05;
}
check 'get from the new server', $c->get('after'), 'x';
$c->disconnect_all;

# Nobody is there: an answer all the same.
my $dead = $module->new({ servers => [$address =~ m{^/} ? "$address-gone" : '127.0.0.1:1'] });
check 'get without a server', $dead->get('k'), undef;
nope 'set without a server', $dead->set('k', 'x');
print "ok\n";
