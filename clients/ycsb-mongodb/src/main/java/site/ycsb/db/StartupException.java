package site.ycsb.db;

/**
 * Says why a run cannot begin: a property that is wrong, or a deployment that does not answer.
 *
 * <p>It is thrown through YCSB's main thread, which ends the JVM with exit code 1 and prints the exception. A stack
 * trace would bury the one line a reader needs, so there is none.
 */
public final class StartupException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  StartupException(String message) {
    super(message, null, false, false);
  }

  @Override
  public String toString() {
    return "ycsb-mongodb: " + getMessage();
  }
}
