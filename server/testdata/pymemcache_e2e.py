"""Uses a server at sys.argv[1] (host:port, or the path of a unix socket) as a
program with pymemcache would; over TLS, if QUARRY_CA names a CA. Any difference ends it with a traceback."""

import os
import ssl
import sys
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import (
    MemcacheClientError,
    MemcacheIllegalInputError,
    MemcacheServerError,
)


def server(addr):
    if addr.startswith("/"):
        return addr
    host, port = addr.rsplit(":", 1)
    return (host, int(port))


def check(got, want):
    assert got == want, "got %r, want %r" % (got, want)


def fails(errors, call, *args, **kwargs):
    try:
        got = call(*args, **kwargs)
    except errors:
        return
    raise AssertionError("no error, but %r" % (got,))


def ask(line):
    print(line, flush=True)
    sys.stdin.readline()


def stores(c):
    check(c.get("miss"), None)
    check(c.get("miss", default="d"), "d")
    check(c.set("k", "one", noreply=False), True)
    check(c.get("k"), b"one")
    check(c.add("k", "x", noreply=False), False)
    check(c.add("l", "new", noreply=False), True)
    check(c.replace("miss", "x", noreply=False), False)
    check(c.replace("k", "two", noreply=False), True)
    check(c.append("k", "+", noreply=False), True)
    check(c.prepend("k", "-", noreply=False), True)
    check(c.append("miss", "+", noreply=False), False)
    check(c.get("k"), b"-two+")
    check(c.set("empty", "", noreply=False), True)
    check(c.get("empty"), b"")


def cas(c):
    c.set("c", "1", noreply=False)
    value, token = c.gets("c")
    check(value, b"1")
    check(c.cas("c", "2", token, noreply=False), True)
    check(c.cas("c", "3", token, noreply=False), False)
    check(c.cas("miss", "3", token, noreply=False), None)
    check(c.get("c"), b"2")
    many = c.gets_many(["c", "miss", "k"])
    check(sorted(many), ["c", "k"])
    check(many["c"][0], b"2")


def numbers(c):
    c.set("n", "10", noreply=False)
    check(c.incr("n", 5), 15)
    check(c.decr("n", 20), 0)
    check(c.incr("n", 18446744073709551615), 18446744073709551615)
    check(c.incr("miss", 1), None)
    c.set("text", "abc", noreply=False)
    fails(MemcacheClientError, c.incr, "text", 1)


def many(c):
    values = {"many-%d" % i: b"value %d" % i for i in range(500)}
    check(c.set_many(values, noreply=False), [])
    check(c.get_many(list(values) + ["miss"]), values)
    check(c.delete_many(list(values)[:250], noreply=False), True)
    check(len(c.get_many(list(values))), 250)
    check(c.delete_many(list(values)), True)
    check(c.get_many(list(values)), {})


def quiet(c):
    for i in range(1000):
        c.set("q-%d" % i, str(i), noreply=True)
    c.delete("q-1", noreply=True)
    c.incr("q-2", 1, noreply=True)
    check(c.get("q-0"), b"0")
    check(c.get("q-1"), None)
    check(c.get("q-2"), b"3")
    check(c.get("q-999"), b"999")


def times(c):
    check(c.set("t", "x", expire=-1, noreply=False), True)
    check(c.get("t"), None)
    check(c.set("t", "x", expire=1000, noreply=False), True)
    check(c.touch("t", expire=-1, noreply=False), True)
    check(c.get("t"), None)
    check(c.touch("t", expire=10, noreply=False), False)
    check(c.set("t", "x", expire=100, noreply=False), True)
    check(c.set("at", "x", expire=int(time.time()) + 3600, noreply=False), True)
    check(c.set("kept", "x", expire=100, noreply=False), True)
    check(c.touch("kept", expire=1000, noreply=False), True)
    if hasattr(c, "gat"):
        check(c.set("got", "x", expire=100, noreply=False), True)
        check(c.gat("got", expire=1000), b"x")
        check(c.gats("got", expire=1000)[0], b"x")
        check(c.gat("miss", expire=1000), None)
    else:
        check(c.set("got", "x", expire=1000, noreply=False), True)
    ask("advance 101")
    check(sorted(c.get_many(["t", "at", "kept", "got"])), ["at", "got", "kept"])
    ask("advance 1000")
    check(sorted(c.get_many(["t", "kept", "got"])), [])


def sizes(c):
    large = b"0123456789abcdef" * (1000000 // 16)
    check(c.set("large", large, noreply=False), True)
    check(c.get("large"), large)
    fails(MemcacheServerError, c.set, "large", b"x" * (2 << 20), noreply=False)
    check(c.get("large"), None)
    key = "k" * 250
    check(c.set(key, "x", noreply=False), True)
    check(c.get(key), b"x")
    fails(MemcacheIllegalInputError, c.set, "k" + key, "x")
    check(c.get(key), b"x")


def rest(c):
    check(c.version().startswith(b"1.6."), True)
    stats = c.stats()
    check(stats[b"threads"] > 0, True)
    check(b"curr_items" in stats, True)
    check(c.delete("k", noreply=False), True)
    check(c.delete("k", noreply=False), False)
    if hasattr(c, "raw_command"):
        c.set("raw", "abc", noreply=False)
        check(c.raw_command("mg raw s"), b"HD s3")
        check(c.raw_command("mn"), b"MN")
        dump = c.raw_command("lru_crawler mgdump all", b"EN\r\n").split(b"\r\n")
        check(dump[0], b"OK")
        check(b"mg raw" in dump, True)
        dump = c.raw_command("lru_crawler metadump all", b"END\r\n")
        check(dump.count(b"key=raw exp=-1 la="), 1)
    check(c.flush_all(noreply=False), True)
    check(c.get("n"), None)


def restart(c):
    """What was cached is gone with the server, and one request with it; then
    the client connects anew. A client that tries again sees nothing of it."""
    check(c.set("before", "x", noreply=False), True)
    ask("restart")
    fails((OSError, MemcacheServerError), c.get, "before")
    check(c.get("before"), None)
    check(c.set("before", "x", noreply=False), True)
    again = RetryingClient(c, attempts=2)
    ask("restart")
    check(again.get("before"), None)
    check(again.set("after", "x", noreply=False), True)
    check(c.get("after"), b"x")
    c.close()
    gone = Client(addr + "-gone" if isinstance(addr, str) else ("127.0.0.1", 1), timeout=20, connect_timeout=20)
    fails(OSError, gone.get, "k")


def suite(c):
    for part in (stores, cas, numbers, many, quiet, times, sizes, rest):
        part(c)
    c.close()


addr = server(sys.argv[1])
options = {"timeout": 20, "connect_timeout": 20}
if "QUARRY_CA" in os.environ:
    options["tls_context"] = ssl.create_default_context(cafile=os.environ["QUARRY_CA"])
suite(Client(addr, **options))
suite(PooledClient(addr, max_pool_size=4, **options))
restart(Client(addr, **options))
hashed = HashClient([addr], **options)
stores(hashed)
many(hashed)
hashed.close()
print("ok")
