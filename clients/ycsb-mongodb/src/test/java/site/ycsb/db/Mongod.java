package site.ycsb.db;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.bson.Document;

/** A real mongod of the test's own: loopback only, a port and a data folder that nobody else has. */
final class Mongod implements AutoCloseable {
  static final String DATABASE = "ycsb";
  static final String TABLE = "usertable";

  private static final long START_DEADLINE_SECONDS = 60;
  private static final long STOP_DEADLINE_SECONDS = 30;

  private final Path binary = binary();
  private final Path folder;
  private final int port;
  private final List<String> options;
  private Process process;
  private MongoClient client;

  private Mongod(List<String> options) throws IOException {
    this.options = options;
    this.folder = Files.createTempDirectory("ycsb-mongodb-");
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      this.port = socket.getLocalPort();
    }
  }

  /** Starts a standalone mongod with failpoints enabled. */
  static Mongod standalone() throws IOException {
    return started(List.of());
  }

  /** Starts a mongod that is a replica set of one member, with itself as primary. */
  static Mongod replicaSet() throws IOException {
    Mongod mongod = started(List.of("--replSet", "rs"));
    Document member = new Document("_id", 0).append("host", "127.0.0.1:" + mongod.port);
    mongod.admin().runCommand(new Document("replSetInitiate",
        new Document("_id", "rs").append("members", List.of(member))));
    mongod.waitFor(() -> mongod.admin().runCommand(new Document("hello", 1)).getBoolean("isWritablePrimary"));
    return mongod;
  }

  private static Mongod started(List<String> options) throws IOException {
    Mongod mongod = new Mongod(options);
    mongod.start();
    return mongod;
  }

  /** The mongod to start, from the system property or the environment; its absence is a failure, never a skip. */
  static Path binary() {
    String path = Optional.ofNullable(System.getProperty("microshard.mongod"))
        .filter(text -> !text.isBlank() && !text.startsWith("${"))
        .orElseGet(() -> System.getenv("MICROSHARD_MONGOD"));
    if (path == null || !Files.isExecutable(Path.of(path))) {
      throw new IllegalStateException("no mongod to test with: set MICROSHARD_MONGOD or -Dmicroshard.mongod to an"
          + " executable mongod (found: " + path + ")");
    }
    return Path.of(path);
  }

  /** Starts the process; after {@link #kill} again on the same port and data. */
  void start() throws IOException {
    List<String> command = new ArrayList<>(List.of(binary.toString(), "--dbpath", folder.toString(), "--port",
        String.valueOf(port), "--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25",
        "--setParameter", "enableTestCommands=1",
        "--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"));
    command.addAll(options);
    process = new ProcessBuilder(command).redirectErrorStream(true)
        .redirectOutput(folder.resolve("mongod.log").toFile()).start();
    if (client == null) {
      client = MongoClients.create("mongodb://127.0.0.1:" + port
          + "/?directConnection=true&serverSelectionTimeoutMS=500&connectTimeoutMS=500&heartbeatFrequencyMS=500");
    }
    waitFor(() -> admin().runCommand(new Document("ping", 1)).containsKey("ok"));
  }

  /** Ends the process at once, as a crash does. */
  void kill() {
    process.destroyForcibly().onExit().join();
  }

  private void stop() {
    process.destroy();
    process.onExit().completeOnTimeout(null, STOP_DEADLINE_SECONDS, TimeUnit.SECONDS).join();
    if (process.isAlive()) {
      kill();
    }
  }

  private void waitFor(BooleanSupplier ready) throws IOException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_DEADLINE_SECONDS);
    while (true) {
      try {
        if (ready.getAsBoolean()) {
          return;
        }
      } catch (MongoException e) {
        // Not listening yet; the log says why if it never does.
      }
      if (!process.isAlive() || System.nanoTime() > deadline) {
        throw new IOException("mongod did not start:\n" + Files.readString(folder.resolve("mongod.log")));
      }
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
    }
  }

  /** The address for the binding; {@code options} are appended as they are. */
  String url(String... urlOptions) {
    String query = urlOptions.length == 0 ? "" : "?" + String.join("&", urlOptions);
    return "mongodb://127.0.0.1:" + port + "/" + DATABASE + query;
  }

  MongoDatabase admin() {
    return client.getDatabase("admin");
  }

  MongoDatabase database() {
    return client.getDatabase(DATABASE);
  }

  MongoCollection<Document> table() {
    return database().getCollection(TABLE);
  }

  /** Makes the next {@code times} commands of this name fail with the server's code. */
  void failNext(String command, int code, int times) {
    admin().runCommand(new Document("configureFailPoint", "failCommand")
        .append("mode", new Document("times", times))
        .append("data", new Document("failCommands", List.of(command)).append("errorCode", code)));
  }

  @Override
  public void close() throws IOException {
    client.close();
    stop();
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(Mongod::delete);
    }
  }

  private static void delete(Path path) {
    try {
      Files.delete(path);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
