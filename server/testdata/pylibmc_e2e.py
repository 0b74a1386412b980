"""Uses a server as a program with pylibmc would. Arguments: text or binary, and
the server (host:port, or the path of a unix socket). Any difference ends it
with a traceback."""

import os
import sys
import time

import pylibmc


def check(got, want):
    assert got == want, "got %r, want %r" % (got, want)


def fails(errors, call, *args, **kwargs):
    try:
        got = call(*args, **kwargs)
    except errors:
        return
    raise AssertionError("no error, but %r" % (got,))


def refuses(call, *args):
    """A miss where an item is needed: which error says so is the protocol's."""
    try:
        check(call(*args), False)
    except pylibmc.Error:
        check(binary, True)


def ask(line):
    print(line, flush=True)
    sys.stdin.readline()


def stores(c):
    check(c.get("miss"), None)
    check(c.get("miss", "d"), "d")
    check(c.set("k", "one"), True)
    check(c.get("k"), "one")
    check("k" in c, True)
    check("miss" in c, False)
    check(c.add("k", "x"), False)
    check(c.add("l", "new"), True)
    refuses(c.replace, "miss", "x")
    check(c.replace("k", "two"), True)
    check(c.append("k", "+"), True)
    check(c.prepend("k", "-"), True)
    refuses(c.append, "miss", "+")
    check(c.get("k"), "-two+")
    check(c.set("empty", ""), True)
    check(c.get("empty"), "")
    # Types ride in the client flags.
    for value in (b"bytes", 42, 1 << 40, True, 2.5, {"a": [1, None]}):
        check(c.set("typed", value), True)
        check(c.get("typed"), value)
    check(c.delete("k"), True)
    check(c.delete("k"), False)


def cas(c):
    c.set("c", "1")
    value, token = c.gets("c")
    check(value, "1")
    check(c.cas("c", "2", token), True)
    check(c.cas("c", "3", token), False)
    check(c.get("c"), "2")
    check(c.gets("miss"), (None, None))
    c.delete("c")
    fails(pylibmc.NotFound, c.cas, "c", "4", token)


def numbers(c):
    c.set("n", "10")
    check(c.incr("n", 5), 15)
    check(c.decr("n", 20), 0)
    check(c.incr("n", 1 << 30), 1 << 30)
    fails(pylibmc.NotFound, c.incr, "miss")
    fails(pylibmc.NotFound, c.decr, "miss")
    c.set("text", "abc")
    fails(pylibmc.Error, c.incr, "text")
    c.set_multi({"a-n": 1, "b-n": 2})
    c.incr_multi(["a-n", "b-n"], delta=10)
    check(c.get_multi(["a-n", "b-n"]), {"a-n": 11, "b-n": 12})


def many(c):
    values = {"%d" % i: "value %d" % i for i in range(500)}
    check(c.set_multi(values, key_prefix="many-"), [])
    check(c.get_multi(list(values) + ["miss"], key_prefix="many-"), values)
    check(c.add_multi({"many-1": "x", "many-new": "x"}), ["many-1"])
    check(c.delete_multi(list(values)[:250], key_prefix="many-"), True)
    check(len(c.get_multi(list(values), key_prefix="many-")), 250)
    check(c.delete_multi(["many-1", "many-499"]), False)


def times(c):
    check(c.set("t", "x", time=100), True)
    check(c.set("at", "x", time=int(time.time()) + 3600), True)
    check(c.set("kept", "x", time=100), True)
    check(c.touch("kept", 1000), True)
    check(c.touch("miss", 1000), False)
    ask("advance 101")
    check(c.get_multi(["t", "at", "kept"]), {"at": "x", "kept": "x"})
    ask("advance 4000")
    check(c.get_multi(["t", "at", "kept"]), {})


def sizes(c):
    large = bytes(range(256)) * (1000000 // 256)
    check(c.set("large", large), True)
    check(c.get("large"), large)
    fails(pylibmc.Error, c.set, "large", b"x" * (2 << 20))
    check(c.get("large"), None)
    check(c.set("zipped", "text " * 400000, min_compress_len=1000), True)
    check(c.get("zipped"), "text " * 400000)
    key = "k" * 250
    check(c.set(key, "x"), True)
    check(c.get(key), "x")
    fails((pylibmc.Error, ValueError), c.set, "k" * 251, "x")


def quiet(c):
    """Without replies. (The library cannot do this in binary.)"""
    if binary:
        return
    q = client({"_noreply": True, "buffer_requests": True})
    for i in range(1000):
        q.set("q-%d" % i, i)
    check(q.get("q-999"), 999)
    check(c.get_multi(["q-0", "q-500", "q-1000"]), {"q-0": 0, "q-500": 500})
    q.disconnect_all()


def stats(c):
    [(name, figures)] = c.get_stats()
    check(int(figures["curr_items"]) > 0, True)
    check(int(figures["cmd_set"]) > 0, True)


def flush(c):
    check(c.set("n", 1), True)
    check(c.flush_all(), True)
    check(c.get("n"), None)


def restart(c):
    """What was cached is gone with the server; the client finds the next one."""
    check(c.set("before", "x"), True)
    ask("restart")
    for _ in range(200):
        try:
            check(c.get("before"), None)
            check(c.set("after", "x"), True)
            break
        except pylibmc.Error:
            time.sleep(0.05)
    check(c.get("after"), "x")


def client(more={}):
    behaviors = {"cas": True, "tcp_nodelay": True, "retry_timeout": 1}
    return pylibmc.Client([address], binary=binary, behaviors=dict(behaviors, **more), **login)


# With a user in the environment the server wants a login.
login = {}
if "QUARRY_USER" in os.environ:
    login = {"username": os.environ["QUARRY_USER"], "password": os.environ["QUARRY_PASSWORD"]}


binary, address = sys.argv[1] == "binary", sys.argv[2]
c = client()
for part in (stores, cas, numbers, many, times, sizes, quiet, stats, flush, restart):
    part(c)
c.disconnect_all()
print("ok")
