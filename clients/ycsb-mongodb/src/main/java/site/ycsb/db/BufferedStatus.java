package site.ycsb.db;

import java.util.Arrays;
import java.util.Properties;
import java.util.TreeSet;
import site.ycsb.Status;

/**
 * The answer to an insert that only went into the buffer of its batch.
 *
 * <p>YCSB's {@code DBWrapper} times every {@code insert()} and files the time under INSERT when the status is ok, and
 * elsewhere when it is not. With batches of 100 that would bury one true latency among 99 times of an array store. So
 * this status answers the wrapper's question, always the first one after {@code insert()} returned, with "not ok": the
 * time goes to the series {@code INSERT-BATCHED_OK}. Whoever asks later, above all the workload, which would take "not
 * ok" for a lost record, hears "ok". INSERT keeps the latencies of batches alone.
 *
 * <p>One object serves one {@code DB}, that is one thread.
 */
final class BufferedStatus extends Status {
  private static final String TRACKED_ERRORS = "latencytrackederrors";

  private boolean fresh;

  BufferedStatus() {
    super(Status.BATCHED_OK.getName(), Status.BATCHED_OK.getDescription());
  }

  /** To be called once for each buffered insert, just before its {@code insert()} returns. */
  BufferedStatus renewed() {
    fresh = true;
    return this;
  }

  @Override
  public boolean isOk() {
    boolean askedByWrapper = fresh;
    fresh = false;
    return !askedByWrapper;
  }

  @Override
  public boolean equals(Object other) {
    return super.equals(other);
  }

  @Override
  public int hashCode() {
    return super.hashCode();
  }

  /**
   * Makes YCSB file the time under the status's name instead of INSERT-FAILED. The wrapper reads the property after the
   * binding's {@code init()}.
   */
  static void track(Properties properties) {
    synchronized (properties) {
      TreeSet<String> names = new TreeSet<>(Arrays.asList(properties.getProperty(TRACKED_ERRORS, "").split(",")));
      names.remove("");
      names.add(Status.BATCHED_OK.getName());
      properties.setProperty(TRACKED_ERRORS, String.join(",", names));
    }
  }
}
