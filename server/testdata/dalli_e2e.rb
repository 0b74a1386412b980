# Uses a server as a program with dalli would, which Rails does. Argument: the
# server (host:port, or the path of a unix socket). Any difference ends it with
# a line.

require 'dalli'

$stdout.sync = true
Dalli.logger.level = Logger::FATAL

def check(what, got, want)
  return if got == want
  abort "#{what} (#{caller(1..1).first}): got #{got.inspect[0, 80]}, want #{want.inspect[0, 80]}"
end

def yes(what, got)
  abort "#{what} (#{caller(1..1).first}): got #{got.inspect}" unless got
end

def fails(what, error)
  got = yield
rescue error
  nil
else
  abort "#{what} (#{caller(1..1).first}): no error, but #{got.inspect}"
end

def ask(line)
  puts line
  $stdin.gets
end

address = ARGV.fetch(0)
# With a user in the environment the server wants a login.
options = {
  down_retry_delay: 0.05, socket_failure_delay: 0.01,
  username: ENV['QUARRY_USER'], password: ENV['QUARRY_PASSWORD']
}
c = Dalli::Client.new(address, options)

check 'get of a miss', c.get('miss'), nil
yes 'set', c.set('k', { 'a' => [1, nil, 2.5] })
check 'get of a structure', c.get('k'), { 'a' => [1, nil, 2.5] }
yes 'set', c.set('s', 'one', nil, raw: true)
check 'add over an item', c.add('s', 'x'), false
yes 'add', c.add('l', 'new')
check 'replace of a miss', c.replace('miss', 'x'), 0
yes 'replace', c.replace('s', 'two', nil, raw: true)
yes 'append', c.append('s', '+')
yes 'prepend', c.prepend('s', '-')
check 'append to a miss', c.append('miss', '+'), false
check 'get', c.get('s', raw: true), '-two+'
check 'fetch', c.fetch('fetched') { 'made' }, 'made'
check 'fetch again', c.fetch('fetched') { abort 'made twice' }, 'made'
yes 'delete', c.delete('k')
check 'delete again', c.delete('k'), nil

yes 'set', c.set('c', '1')
yes('cas', c.cas('c') { |value| value + '2' })
check 'get', c.get('c'), '12'
check('cas of a miss', c.cas('miss') { |value| value }, nil)
check('cas too late', c.cas('c') { |value| c.set('c', 'other') && value }, false)
check 'get', c.get('c'), 'other'
_, cas = c.get_cas('c')
yes 'set with the right cas', c.set_cas('c', 'third', cas)
check 'set with a wrong cas', c.set_cas('c', 'fourth', cas), false
check 'delete with a wrong cas', c.delete_cas('c', cas), false
check 'get', c.get('c'), 'third'

check 'incr of a miss', c.incr('n', 1), nil
check 'incr with a default', c.incr('n', 1, nil, 10), 10
check 'incr', c.incr('n', 5), 15
check 'decr', c.decr('n', 20), 0
check 'incr', c.incr('n', 1 << 40), 1 << 40
yes 'set', c.set('text', 'abc', nil, raw: true)
fails('incr of a text', Dalli::DalliError) { c.incr('text') }

# Quiet commands, pipelined, and the replies to those that fail among them.
c.multi do
  500.times { |i| c.set("many-#{i}", "value #{i}") }
  c.delete('many-7')
  c.replace('miss', 'x')
end
keys = (0...500).map { |i| "many-#{i}" } + ['miss']
many = c.get_multi(keys)
check 'get of many', many.size, 499
many.each { |key, value| check "get of #{key}", value, "value #{key[5..]}" }
check 'get of many with cas', c.get_multi_cas('many-1', 'many-2', 'miss').size, 2

yes 'set with a time', c.set('t', 'x', 100)
yes 'set with a date', c.set('at', 'x', Time.now.to_i + 3600)
yes 'set', c.set('kept', 'x', 100)
yes 'set', c.set('got', 'x', 100)
yes 'touch', c.touch('kept', 1000)
check 'touch of a miss', c.touch('miss', 1000), nil
check 'gat', c.gat('got', 1000), 'x'
check 'gat of a miss', c.gat('miss', 1000), nil
ask 'advance 101'
check 'get of an expired item', c.get('t'), nil
check 'get of those that are not', c.get_multi('at', 'kept', 'got').size, 3
ask 'advance 4000'
check 'get of many that are expired', c.get_multi('at', 'kept', 'got'), {}

large = Random.new(1).bytes(1_000_000)
yes 'set of a large value', c.set('large', large, nil, raw: true)
yes 'get of a large value', c.get('large', raw: true) == large
fails('set over the limit', Dalli::ValueOverMaxSize) { c.set('large', 'x' * (2 << 20), nil, raw: true, compress: false) }
yes 'set of what is compressed', c.set('zipped', 'text ' * 400_000)
check 'get of what is compressed', c.get('zipped'), 'text ' * 400_000
key = 'k' * 250
yes 'set with the longest key', c.set(key, 'x')
check 'get with the longest key', c.get(key), 'x'

stats = c.stats.values.first
yes 'curr_items', stats['curr_items'].to_i.positive?
yes 'cmd_set', stats['cmd_set'].to_i.positive?
check 'settings', c.stats(:settings).values.first['item_size_max'], '1048576'
yes 'version', c.version.values.first.start_with?('1.6.')
c.reset_stats
check 'cmd_set after a reset', c.stats.values.first['cmd_set'], '0'
yes 'flush', c.flush.all?
check 'get after flush', c.get('n'), nil

# What was cached is gone with the server; the client finds the next one.
yes 'set', c.set('before', 'x')
ask 'restart'
200.times do
  check 'get of what the server took with it', c.get('before'), nil
  yes 'set', c.set('after', 'x')
  break
rescue Dalli::RingError, Dalli::NetworkError
  sleep 0.05
end
check 'get from the new server', c.get('after'), 'x'
c.close

# Nobody is there: an error, soon.
nobody = Dalli::Client.new(address.start_with?('/') ? "#{address}-gone" : '127.0.0.1:1', options)
fails('get without a server', Dalli::RingError) { nobody.get('k') }
puts 'ok'
