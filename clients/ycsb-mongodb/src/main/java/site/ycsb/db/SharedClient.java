package site.ycsb.db;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/**
 * The one {@link MongoClient} of the JVM, and the report of what its threads saw.
 *
 * <p>YCSB makes a {@code DB} per thread. A client each would mean a pool and a set of monitoring threads each.
 */
final class SharedClient {
  private static final Map<Settings, SharedClient> OPEN = new HashMap<>();

  private final Settings settings;
  private final MongoClient client;
  private final RunReport report = new RunReport();
  private final AtomicBoolean published = new AtomicBoolean();
  private final Thread atExit = new Thread(this::publish, "ycsb-mongodb-report");
  private final AtomicInteger started = new AtomicInteger();
  private final AtomicLong lateMillis = new AtomicLong();
  private int users;

  private SharedClient(Settings settings) {
    this.settings = settings;
    this.client = connect(settings);
    // A run that is interrupted, or whose threads die, never gets to cleanup(); its errors count all the same.
    Runtime.getRuntime().addShutdownHook(atExit);
  }

  /**
   * Returns the client for these settings, made at the first call.
   *
   * @throws StartupException when the deployment does not answer within the URL's serverSelectionTimeoutMS
   */
  static synchronized SharedClient acquire(Settings settings) {
    SharedClient shared = OPEN.get(settings);
    if (shared == null) {
      shared = new SharedClient(settings);
      OPEN.put(settings, shared);
    }
    shared.users++;
    return shared;
  }

  /** To be called once per {@link #acquire}; the last user publishes the report and closes the connections. */
  void release() {
    synchronized (SharedClient.class) {
      users--;
      if (users > 0) {
        return;
      }
      OPEN.remove(settings);
    }
    client.close();
    publish();
    try {
      Runtime.getRuntime().removeShutdownHook(atExit);
    } catch (IllegalStateException e) {
      // The JVM is going down already: the hook runs, finds the report published and does nothing.
    }
  }

  /** Holds a thread until its time has come. Threads are numbered as they arrive here. */
  void awaitStart() {
    int order = started.getAndIncrement();
    if (order == 0 && !settings.start().startFile().isEmpty()) {
      System.err.println("ycsb-mongodb: ready");
    }
    long late = settings.start().decided().await(order);
    lateMillis.accumulateAndGet(late, Math::max);
  }

  Settings settings() {
    return settings;
  }

  RunReport report() {
    return report;
  }

  MongoCollection<BsonDocument> collection(String table) {
    return client.getDatabase(settings.database()).getCollection(table, BsonDocument.class);
  }

  private static MongoClient connect(Settings settings) {
    MongoClient client = MongoClients.create(settings.driver());
    try {
      client.getDatabase("admin").runCommand(new BsonDocument("ping", new BsonInt32(1)), settings.readPreference());
      return client;
    } catch (MongoException e) {
      client.close();
      throw new StartupException("cannot use " + String.join(",", settings.url().getHosts()) + ": "
          + Settings.withoutPassword(e.getMessage()));
    }
  }

  private void publish() {
    if (!published.compareAndSet(false, true)) {
      return;
    }
    Properties build = new Properties();
    String json;
    try (InputStream resource = SharedClient.class.getResourceAsStream("/ycsb-mongodb.properties")) {
      build.load(resource);
      json = report.json(settings, build.getProperty("version"), build.getProperty("driver"), lateMillis.get());
      System.err.println("[MONGODB-REPORT] " + json);
      if (!settings.reportPath().isEmpty()) {
        write(Path.of(settings.reportPath()), json);
      }
    } catch (IOException e) {
      System.err.println("ycsb-mongodb: cannot write " + PropertyNames.REPORT + "=" + settings.reportPath() + ": " + e);
    }
  }

  /** Written beside its place and moved there, so that a reader never finds half a report. */
  private static void write(Path path, String json) throws IOException {
    Path beside = path.resolveSibling(path.getFileName() + ".part");
    Files.writeString(beside, json + "\n");
    Files.move(beside, path, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }
}
