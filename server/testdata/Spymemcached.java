import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

/**
 * Uses a server as a program with spymemcached would. Arguments: text or
 * binary, and the server, host:port. Any difference ends it with a stack trace.
 */
public class Spymemcached {
  static final int PATIENCE_SECONDS = 20;

  static void check(String what, Object got, Object want) {
    if (got == null ? want != null : !got.equals(want)) {
      throw new AssertionError(what + ": got " + got + ", want " + want);
    }
  }

  static <T> T wait(Future<T> f) throws Exception {
    return f.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  static void ask(String line) throws Exception {
    System.out.println(line);
    while (System.in.read() != '\n') {}
  }

  static MemcachedClient connect(boolean binary, String address) throws Exception {
    ConnectionFactoryBuilder builder =
        new ConnectionFactoryBuilder()
            .setProtocol(binary ? Protocol.BINARY : Protocol.TEXT)
            .setFailureMode(FailureMode.Cancel)
            .setOpTimeout(PATIENCE_SECONDS * 1000)
            .setMaxReconnectDelay(1);
    String user = System.getenv("QUARRY_USER");
    if (user != null) { // the server wants a login
      builder.setAuthDescriptor(
          new AuthDescriptor(
              new String[] {"PLAIN"},
              new PlainCallbackHandler(user, System.getenv("QUARRY_PASSWORD"))));
    }
    return new MemcachedClient(builder.build(), AddrUtil.getAddresses(address));
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy").setLevel(java.util.logging.Level.OFF);
    boolean binary = args[0].equals("binary");
    MemcachedClient c = connect(binary, args[1]);

    check("get of a miss", c.get("miss"), null);
    check("set", wait(c.set("k", 0, "one")), true);
    check("get", c.get("k"), "one");
    check("add over an item", wait(c.add("k", 0, "x")), false);
    check("add", wait(c.add("l", 0, "new")), true);
    check("replace of a miss", wait(c.replace("miss", 0, "x")), false);
    check("replace", wait(c.replace("k", 0, "two")), true);
    check("append", wait(c.append("k", "+")), true);
    check("prepend", wait(c.prepend("k", "-")), true);
    check("append to a miss", wait(c.append("miss", "+")), false);
    check("get", c.get("k"), "-two+");
    check("set of an object", wait(c.set("list", 0, new ArrayList<>(Arrays.asList(1, "b", 2.5)))), true);
    check("get of an object", c.get("list"), Arrays.asList(1, "b", 2.5));
    check("delete", wait(c.delete("k")), true);
    check("delete again", wait(c.delete("k")), false);

    check("set", wait(c.set("c", 0, "1")), true);
    CASValue<Object> held = c.gets("c");
    check("gets", held.getValue(), "1");
    check("cas", c.cas("c", held.getCas(), "2"), CASResponse.OK);
    check("cas again", c.cas("c", held.getCas(), "3"), CASResponse.EXISTS);
    check("cas of a miss", c.cas("miss", held.getCas(), "3"), CASResponse.NOT_FOUND);
    check("get", c.get("c"), "2");

    check("set of a number", wait(c.set("n", 0, "10")), true);
    check("incr", c.incr("n", 5), 15L);
    check("decr", c.decr("n", 20), 0L);
    check("incr", c.incr("n", 1L << 40), 1L << 40);
    check("incr of a miss", c.incr("miss", 1), -1L);
    check("incr with a default", c.incr("fresh", 1, 7L), 7L);
    check("incr with a default, again", c.incr("fresh", 1, 7L), 8L);

    List<Future<Boolean>> stored = new ArrayList<>();
    Map<String, Object> many = new HashMap<>();
    for (int i = 0; i < 500; i++) {
      many.put("many-" + i, "value " + i);
      stored.add(c.set("many-" + i, 1000, "value " + i));
    }
    for (Future<Boolean> f : stored) {
      check("set of many", wait(f), true);
    }
    List<String> keys = new ArrayList<>(many.keySet());
    keys.add("miss");
    check("get of many", c.getBulk(keys), many);

    check("set with a time", wait(c.set("t", 100, "x")), true);
    check("set with a date", wait(c.set("at", (int) (System.currentTimeMillis() / 1000) + 3600, "x")), true);
    if (binary) {
      check("set", wait(c.set("kept", 100, "x")), true);
      check("set", wait(c.set("got", 100, "x")), true);
      check("touch", wait(c.touch("kept", 1000)), true);
      check("touch of a miss", wait(c.touch("miss", 1000)), false);
      check("gat", c.getAndTouch("got", 1000).getValue(), "x");
      check("gat of a miss", c.getAndTouch("miss", 1000), null);
    }
    ask("advance 101");
    check("get of an expired item", c.get("t"), null);
    check("get of those that are not", c.getBulk("at", "kept", "got", "t").size(), binary ? 3 : 1);
    ask("advance 4000");
    check("get of many that are expired", c.getBulk("at", "kept", "got", "t").size(), 0);

    byte[] large = new byte[1000000];
    new Random(1).nextBytes(large);
    check("set of a large value", wait(c.set("large", 0, large)), true);
    check("get of a large value", Arrays.equals((byte[]) c.get("large"), large), true);
    String key = "k".repeat(250);
    check("set with the longest key", wait(c.set(key, 0, "x")), true);
    check("get with the longest key", c.get(key), "x");

    Map<String, String> stats = c.getStats().values().iterator().next();
    check("curr_items", Integer.parseInt(stats.get("curr_items")) > 0, true);
    check("cmd_set", Integer.parseInt(stats.get("cmd_set")) > 0, true);
    check("settings", c.getStats("settings").values().iterator().next().get("item_size_max"), "1048576");
    check("version", c.getVersions().values().iterator().next().startsWith("1.6."), true);
    check("flush", wait(c.flush()), true);
    check("get after flush", c.get("n"), null);

    // What was cached is gone with the server; the client finds the next one.
    check("set", wait(c.set("before", 0, "x")), true);
    ask("restart");
    for (int i = 0; i < 200; i++) {
      try {
        check("get of what the server took with it", c.get("before"), null);
        check("set", wait(c.set("after", 0, "x")), true);
        break;
      } catch (RuntimeException | ExecutionException e) {
        Thread.sleep(50);
      }
    }
    check("get from the new server", c.get("after"), "x");
    c.shutdown(1, TimeUnit.SECONDS);

    // Nobody is there: an error, not a miss.
    MemcachedClient nobody = connect(binary, "127.0.0.1:1");
    try {
      throw new AssertionError("get without a server: " + nobody.get("k"));
    } catch (RuntimeException e) {
      nobody.shutdown();
    }
    System.out.println("ok");
    System.exit(0);
  }
}
