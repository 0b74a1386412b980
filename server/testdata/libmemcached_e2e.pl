# Uses a server as a program with Memcached::libmemcached, libmemcached in Perl,
# would. Arguments: text or binary, and the server (host:port, or the path of a
# unix socket). Any difference ends it with a line.
use strict;
use warnings;
use Time::HiRes qw(sleep time);
use Memcached::libmemcached ();
BEGIN { Memcached::libmemcached->import(@Memcached::libmemcached::EXPORT_OK) }

my ($protocol, $address) = @ARGV;
my $binary = $protocol eq 'binary';
$| = 1;

sub show { my ($v) = @_; defined $v ? "'" . substr($v, 0, 60) . "'" : 'undef' }

sub check {
    my ($what, $got, $want) = @_;
    return if defined $got && defined $want ? $got eq $want : !defined $got && !defined $want;
    my (undef, undef, $line) = caller;
    die "$what (line $line): got " . show($got) . ', want ' . show($want) . "\n";
}

sub ask { print "$_[0]\n"; scalar <STDIN> }

sub connect_to {
    my ($address) = @_;
    my $c = memcached_create();
    memcached_behavior_set($c, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, $binary);
    memcached_behavior_set($c, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    memcached_behavior_set($c, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 1);
    if ($address =~ m{^/}) {
        memcached_server_add_unix_socket($c, $address);
    } else {
        memcached_server_add($c, split /:/, $address);
    }
    return $c;
}

my $c = connect_to($address);

# code is what the last call came to, ok whether it came to success.
sub code { 0 + $c->errstr }

sub ok {
    my ($what, $got) = @_;
    return if $got;
    my (undef, undef, $line) = caller;
    die "$what (line $line): " . $c->errstr . "\n";
}

sub refused {
    my ($what, $got, @codes) = @_;
    my (undef, undef, $line) = caller;
    die "$what (line $line): no error\n" if $got;
    my $code = code;
    die "$what (line $line): " . $c->errstr . "\n" unless grep { $_ == $code } @codes;
}

check 'get of a miss', memcached_get($c, 'miss'), undef;
check 'its code', code, MEMCACHED_NOTFOUND;
ok 'set', memcached_set($c, 'k', 'one', 0, 1234);
check 'get', memcached_get($c, 'k', my $flags, my $rc), 'one';
check 'its flags', $flags, 1234;
refused 'add over an item', memcached_add($c, 'k', 'x'), MEMCACHED_NOTSTORED, MEMCACHED_DATA_EXISTS;
ok 'add', memcached_add($c, 'l', 'new');
refused 'replace of a miss', memcached_replace($c, 'miss', 'x'), MEMCACHED_NOTSTORED, MEMCACHED_NOTFOUND;
ok 'replace', memcached_replace($c, 'k', 'two');
ok 'append', memcached_append($c, 'k', '+');
ok 'prepend', memcached_prepend($c, 'k', '-');
refused 'append to a miss', memcached_append($c, 'miss', '+'), MEMCACHED_NOTSTORED;
check 'get', memcached_get($c, 'k'), '-two+';
ok 'set of nothing', memcached_set($c, 'empty', '');
check 'get of nothing', memcached_get($c, 'empty'), '';
ok 'delete', memcached_delete($c, 'k');
refused 'delete again', memcached_delete($c, 'k'), MEMCACHED_NOTFOUND;

ok 'set of a number', memcached_set($c, 'n', '10');
ok 'increment', memcached_increment($c, 'n', 5, my $number = 0);
check 'its number', $number, 15;
ok 'decrement', memcached_decrement($c, 'n', 20, $number);
check 'its number', $number, 0;
refused 'increment of a miss', memcached_increment($c, 'miss', 1, $number), MEMCACHED_NOTFOUND;
if ($binary) {
    ok 'increment with an initial number', memcached_increment_with_initial($c, 'fresh', 1, 7, 0, $number);
    check 'its number', $number, 7;
    ok 'increment', memcached_increment_with_initial($c, 'fresh', 1, 7, 0, $number);
    check 'its number', $number, 8;
}

my %many = map { ("many-$_" => "value $_") } 1 .. 500;
ok "set of $_", memcached_set($c, $_, $many{$_}, 1000) for sort keys %many;
my %got;
ok 'get of many', $c->memcached_mget([sort(keys %many), 'miss']);
while (defined(my $value = memcached_fetch($c, my $key, $flags, $rc))) {
    $got{$key} = $value;
}
check 'get of many', scalar(keys %got), 500;
check "get of $_", $got{$_}, $many{$_} for keys %many;

ok 'set with a time', memcached_set($c, 't', 'x', 100);
ok 'set with a date', memcached_set($c, 'at', 'x', int(time) + 3600);
ask 'advance 101';
check 'get of an expired item', memcached_get($c, 't'), undef;
check 'get of one that is not', memcached_get($c, 'at'), 'x';
ask 'advance 4000';
check 'get of an expired item', memcached_get($c, 'at'), undef;

my $large = pack('N*', map { $_ * 2654435761 % 4294967296 } 1 .. 250_000);
ok 'set of a large value', memcached_set($c, 'large', $large);
ok 'get of a large value', memcached_get($c, 'large') eq $large;
refused 'set over the limit', memcached_set($c, 'large', 'x' x (2 << 20)),
    MEMCACHED_E2BIG, MEMCACHED_SERVER_ERROR, MEMCACHED_WRITE_FAILURE;
check 'get of what did not fit', memcached_get($c, 'large'), undef;
my $key = 'k' x 250;
ok 'set with the longest key', memcached_set($c, $key, 'x');
check 'get with the longest key', memcached_get($c, $key), 'x';
refused 'set with a longer key', memcached_set($c, "k$key", 'x'), MEMCACHED_BAD_KEY_PROVIDED;

my %stats;
ok 'stats', $c->walk_stats('', sub { $stats{$_[0]} = $_[1]; return });
ok 'curr_items', $stats{curr_items} > 0;
ok 'version', memcached_version($c) =~ /^1\.6\./;
ok 'flush', memcached_flush($c, 0);
check 'get after flush', memcached_get($c, 'n'), undef;

# What was cached is gone with the server; the client finds the next one.
ok 'set', memcached_set($c, 'before', 'x');
ask 'restart';
for (1 .. 200) {
    check 'get of what the server took with it', memcached_get($c, 'before'), undef;
    last if memcached_set($c, 'after', 'x');
    sleep 0.05;
}
check 'get from the new server', memcached_get($c, 'after'), 'x';

# Nobody is there: an error, soon.
$c = connect_to($address =~ m{^/} ? "$address-gone" : '127.0.0.1:1');
check 'get without a server', memcached_get($c, 'k'), undef;
ok 'its code', code != MEMCACHED_NOTFOUND;
print "ok\n";
