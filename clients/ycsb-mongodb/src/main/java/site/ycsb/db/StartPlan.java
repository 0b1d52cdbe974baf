package site.ycsb.db;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/**
 * When each thread of the client begins: all at one time, or rung by rung of a ladder.
 *
 * <p>Clients on several hosts begin together because all are given the same time. A ladder in one process, in which
 * threads only ever join, needs neither a new JVM nor new connections for each of its rungs.
 *
 * @param startAt epoch milliseconds; 0 begins at once
 * @param startFile file that will hold startAt once whoever started the client knows that all are ready; empty for none
 * @param rungs threads at work on each rung, in order; empty for all threads at once
 * @param rungMillis time from one rung to the next
 */
record StartPlan(long startAt, String startFile, List<Integer> rungs, long rungMillis) {
  static final StartPlan AT_ONCE = new StartPlan(0, "", List.of(), 0);
  private static final long POLL_MILLIS = 5;

  /**
   * Reads the plan from a run's properties.
   *
   * @throws StartupException when a value cannot be, or the rungs do not end with all threads
   */
  static StartPlan parse(Properties properties) {
    String at = properties.getProperty(PropertyNames.START_AT);
    String rungs = properties.getProperty(PropertyNames.RUNGS);
    String seconds = properties.getProperty(PropertyNames.RUNG_SECONDS);
    if (at == null && rungs == null && seconds == null) {
      return AT_ONCE;
    }
    if (at == null || (rungs == null) != (seconds == null)) {
      throw new StartupException(PropertyNames.RUNGS + " and " + PropertyNames.RUNG_SECONDS + " go together, and with "
          + PropertyNames.START_AT);
    }
    String file = at.startsWith("@") ? at.substring(1) : "";
    long startAt = file.isEmpty() ? number(PropertyNames.START_AT, at) : 0;
    if (rungs == null) {
      return new StartPlan(startAt, file, List.of(), 0);
    }
    List<Integer> threads = new ArrayList<>();
    int before = 0;
    for (String text : rungs.split(",", -1)) {
      int count = (int) number(PropertyNames.RUNGS, text);
      if (count < before) {
        throw new StartupException(PropertyNames.RUNGS + "=" + rungs + ": threads join and never leave, so a rung"
            + " cannot have fewer than the one before");
      }
      before = count;
      threads.add(count);
    }
    if (!properties.getProperty("threadcount", "1").trim().equals(String.valueOf(before))) {
      throw new StartupException(PropertyNames.RUNGS + "=" + rungs + " must end with threadcount="
          + properties.getProperty("threadcount", "1"));
    }
    return new StartPlan(startAt, file, List.copyOf(threads), number(PropertyNames.RUNG_SECONDS, seconds) * 1000);
  }

  /** Epoch milliseconds at which the thread begins that registered as number {@code order}, from 0. */
  long startOf(int order) {
    int rung = 0;
    while (rung < rungs.size() - 1 && rungs.get(rung) <= order) {
      rung++;
    }
    return startAt + rung * rungMillis;
  }

  /** Waits until the file with the start is there; this plan itself where there is none. */
  StartPlan decided() {
    if (startFile.isEmpty()) {
      return this;
    }
    try {
      Path path = Path.of(startFile);
      while (!Files.exists(path)) {
        TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
      }
      return new StartPlan(number(PropertyNames.START_AT, Files.readString(path)), "", rungs, rungMillis);
    } catch (IOException e) {
      throw new StartupException(PropertyNames.START_AT + "=@" + startFile + ": " + e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return new StartPlan(0, "", rungs, rungMillis);
    }
  }

  /** Waits for a thread's time; returns by how many milliseconds it was missed, 0 when there was time left. */
  long await(int order) {
    long late = System.currentTimeMillis() - startOf(order);
    if (late >= 0 || startAt == 0) {
      return startAt == 0 ? 0 : late;
    }
    try {
      TimeUnit.MILLISECONDS.sleep(-late);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return 0;
  }

  private static long number(String name, String text) {
    try {
      long value = Long.parseLong(text.trim());
      if (value >= 0) {
        return value;
      }
    } catch (NumberFormatException e) {
      // Falls through to the message that suits a word and a negative number alike.
    }
    throw new StartupException(name + "=" + text + ": a whole number of at least 0 is needed");
  }
}
