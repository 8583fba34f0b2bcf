// Comparisons, for both clients in Java.
import java.util.Collection;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

public final class Check {
  static void check(boolean ok, String what) {
    if (!ok) throw new AssertionError(what);
  }

  /** Compares as it is printed. */
  static void is(String what, Object expected, Object got) {
    check(String.valueOf(expected).equals(String.valueOf(got)), what + ": expected " + expected + ", got " + got);
  }

  static <T> TreeSet<T> sorted(Collection<T> values) {
    TreeSet<T> set = new TreeSet<>(values);
    check(set.size() == values.size(), "an element is there twice: " + values);
    return set;
  }

  static void near(String what, long expected, long got) {
    check(Math.abs(got - expected) < expected * 3 / 100, what + ": expected about " + expected + ", got " + got);
  }

  static void sleep(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  static void until(String what, Supplier<Boolean> condition) {
    for (int i = 0; !condition.get(); i++) {
      check(i < 500, "it never came to this: " + what);
      sleep(10);
    }
  }

  /** Runs `change` once the call that `wait` makes is blocked, as `clients` (INFO clients) tells; gives what it returned. */
  static <T> T blocked(Supplier<String> clients, Callable<T> wait, Runnable change) {
    CompletableFuture<T> waiting = CompletableFuture.supplyAsync(() -> {
      try {
        return wait.call();
      } catch (Exception error) {
        throw new AssertionError(error);
      }
    });
    until("a client is blocked", () -> clients.get().contains("blocked_clients:1\r"));
    change.run();
    try {
      return waiting.get(10, TimeUnit.SECONDS);
    } catch (Exception error) {
      throw new AssertionError(error);
    }
  }
}
