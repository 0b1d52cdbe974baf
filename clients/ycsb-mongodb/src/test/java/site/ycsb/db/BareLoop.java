package site.ycsb.db;

import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.Updates;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.htrace.core.HTraceConfiguration;
import org.apache.htrace.core.Tracer;
import org.bson.Document;
import org.bson.types.Binary;
import site.ycsb.ClientThread;
import site.ycsb.DB;
import site.ycsb.DBFactory;
import site.ycsb.RandomByteIterator;
import site.ycsb.Utils;
import site.ycsb.Workload;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * CPU of the client per operation: YCSB with this binding against a bare loop of the same driver.
 *
 * <p>Both run in this JVM, round by round in turns, on the same mongod, threads, pool size, write concern, key space
 * and documents; the values come from YCSB's own generator in both. What is compared is the CPU of the whole process,
 * so garbage collection and the driver's background threads count. Arguments are {@code name=value}; see
 * {@link #DEFAULTS}.
 */
public final class BareLoop {
  private static final Map<String, String> DEFAULTS = Map.of(
      "url", "", "kinds", "READ,UPDATE,INSERT,BATCH,SCAN", "threads", "2", "operations", "30000", "rounds", "7",
      "records", "20000", "fields", "8", "length", "250", "batch", "100", "scan", "50");

  /** Rounds before the counted ones: the JVM compiles the hot paths in them. */
  private static final int WARM_UP_ROUNDS = 3;

  private enum Kind { READ, UPDATE, INSERT, BATCH, SCAN }

  private interface Side {
    void run(Kind kind, int operations) throws Exception;
  }

  private final Map<String, String> arguments = new HashMap<>(DEFAULTS);
  private final OperatingSystemMXBean process =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  private final int threads;
  private final int records;
  private final int fields;
  private final int length;

  private BareLoop(String[] args) {
    for (String arg : args) {
      String[] pair = arg.split("=", 2);
      if (pair.length != 2 || !DEFAULTS.containsKey(pair[0])) {
        throw new IllegalArgumentException(arg + ": known are " + DEFAULTS.keySet());
      }
      arguments.put(pair[0], pair[1]);
    }
    threads = number("threads");
    records = number("records");
    fields = number("fields");
    length = number("length");
  }

  /** Runs the comparison and prints one line per kind of operation. */
  public static void main(String[] args) throws Exception {
    BareLoop bench = new BareLoop(args);
    if (!bench.arguments.get("url").isEmpty()) {
      bench.compare(bench.arguments.get("url"));
      return;
    }
    try (Mongod mongod = Mongod.standalone()) {
      bench.compare(mongod.url());
    }
  }

  private int number(String name) {
    return Integer.parseInt(arguments.get(name));
  }

  private void compare(String url) throws Exception {
    Measurements.setProperties(new Properties());
    try (MongoClient client = MongoClients.create(url + "?maxPoolSize=" + threads)) {
      MongoCollection<Document> table = client.getDatabase(Mongod.DATABASE).getCollection(Mongod.TABLE)
          .withWriteConcern(WriteConcern.W1);
      Side bare = (kind, operations) -> bare(table, kind, operations);
      Side ycsb = (kind, operations) -> ycsb(url, kind, operations);
      System.out.printf("%d threads, %d fields of %d bytes, %d records; CPU per operation in microseconds, medians of"
          + " %d rounds%n", threads, fields, length, records, number("rounds"));
      System.out.printf("%-8s %10s %10s %8s   %s%n", "kind", "bare", "ycsb", "ratio", "ratios of the rounds");
      for (String name : arguments.get("kinds").split(",")) {
        Kind kind = Kind.valueOf(name);
        // Connecting is no part of an operation: like the bare loop's client, the binding's lives through all rounds.
        SharedClient held = SharedClient.acquire(Settings.parse(properties(url, kind, operations(kind))));
        compare(kind, bare, ycsb, table);
        held.release();
      }
    }
  }

  private void compare(Kind kind, Side bare, Side ycsb, MongoCollection<Document> table) throws Exception {
    int rounds = number("rounds");
    double[] bareCpu = new double[rounds];
    double[] ycsbCpu = new double[rounds];
    double[] ratios = new double[rounds];
    for (int round = -WARM_UP_ROUNDS; round < rounds; round++) {
      // The side that goes first changes, so that a machine growing slower favours neither.
      boolean bareFirst = round % 2 == 0;
      double first = cpuPerOperation(kind, bareFirst ? bare : ycsb, table);
      double second = cpuPerOperation(kind, bareFirst ? ycsb : bare, table);
      if (round >= 0) {
        bareCpu[round] = bareFirst ? first : second;
        ycsbCpu[round] = bareFirst ? second : first;
        ratios[round] = ycsbCpu[round] / bareCpu[round];
      }
    }
    Arrays.sort(ratios);
    double bareMedian = median(bareCpu);
    double ycsbMedian = median(ycsbCpu);
    System.out.printf("%-8s %10.2f %10.2f %8.2f   %.2f to %.2f%n", kind, bareMedian, ycsbMedian,
        ycsbMedian / bareMedian, ratios[0], ratios[rounds - 1]);
  }

  private static double median(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    return sorted[sorted.length / 2];
  }

  /** The kernel counts CPU in ticks of 10 ms: cheap operations need more of them, dear ones fewer. */
  private int operations(Kind kind) {
    return switch (kind) {
      case BATCH -> number("operations") * 4;
      case SCAN -> number("operations") / 4;
      default -> number("operations");
    };
  }

  private double cpuPerOperation(Kind kind, Side side, MongoCollection<Document> table) throws Exception {
    int operations = operations(kind);
    if (kind == Kind.INSERT || kind == Kind.BATCH) {
      table.drop();
    } else if (table.estimatedDocumentCount() != records) {
      table.drop();
      bare(table, Kind.BATCH, records);
    }
    System.gc();
    long before = process.getProcessCpuTime();
    side.run(kind, operations);
    return (process.getProcessCpuTime() - before) / 1000.0 / operations;
  }

  private void ycsb(String url, Kind kind, int operations) throws Exception {
    Properties properties = properties(url, kind, operations);
    Workload workload = new CoreWorkload();
    workload.init(properties);
    Tracer tracer = new Tracer.Builder("bench").conf(HTraceConfiguration.EMPTY).build();
    CountDownLatch done = new CountDownLatch(threads);
    List<Thread> started = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      DB db = DBFactory.newDB(MongoDbClient.class.getName(), properties, tracer);
      boolean transactions = kind != Kind.INSERT && kind != Kind.BATCH;
      ClientThread client = new ClientThread(db, transactions, workload, properties, operations / threads, -1, done);
      client.setThreadId(i);
      client.setThreadCount(threads);
      Thread thread = new Thread(client);
      started.add(thread);
      thread.start();
    }
    for (Thread thread : started) {
      thread.join();
    }
  }

  private Properties properties(String url, Kind kind, int operations) {
    Properties properties = new Properties();
    properties.setProperty("mongodb.url", url);
    properties.setProperty("threadcount", String.valueOf(threads));
    properties.setProperty("mongodb.batchsize", kind == Kind.BATCH ? arguments.get("batch") : "1");
    properties.setProperty("recordcount", String.valueOf(kind == Kind.INSERT || kind == Kind.BATCH ? operations
        : records));
    properties.setProperty("operationcount", String.valueOf(operations));
    properties.setProperty("fieldcount", String.valueOf(fields));
    properties.setProperty("fieldlength", String.valueOf(length));
    properties.setProperty("requestdistribution", "uniform");
    properties.setProperty("readproportion", kind == Kind.READ ? "1" : "0");
    properties.setProperty("updateproportion", kind == Kind.UPDATE ? "1" : "0");
    properties.setProperty("scanproportion", kind == Kind.SCAN ? "1" : "0");
    // One length, so that both sides scan the same.
    properties.setProperty("maxscanlength", arguments.get("scan"));
    properties.setProperty("minscanlength", arguments.get("scan"));
    return properties;
  }

  private void bare(MongoCollection<Document> table, Kind kind, int operations) throws Exception {
    List<Thread> started = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      int first = i * (operations / threads);
      Thread thread = new Thread(() -> loop(table, kind, first, operations / threads));
      started.add(thread);
      thread.start();
    }
    for (Thread thread : started) {
      thread.join();
    }
  }

  private void loop(MongoCollection<Document> table, Kind kind, int first, int operations) {
    List<Document> batch = new ArrayList<>();
    InsertManyOptions unordered = new InsertManyOptions().ordered(false);
    for (int i = first; i < first + operations; i++) {
      switch (kind) {
        case READ -> table.find(Filters.eq("_id", randomKey())).first();
        case UPDATE -> table.updateOne(Filters.eq("_id", randomKey()),
            Updates.set("field" + ThreadLocalRandom.current().nextInt(fields), value()));
        case INSERT -> table.insertOne(document(i));
        case BATCH -> {
          batch.add(document(i));
          if (batch.size() == number("batch") || i == first + operations - 1) {
            table.insertMany(batch, unordered);
            batch.clear();
          }
        }
        case SCAN -> table.find(Filters.gte("_id", randomKey())).sort(Sorts.ascending("_id")).limit(number("scan"))
            .into(new ArrayList<>());
        default -> throw new AssertionError(kind);
      }
    }
  }

  private String randomKey() {
    return key(ThreadLocalRandom.current().nextInt(records));
  }

  private static String key(long number) {
    return "user" + Utils.hash(number);
  }

  private Binary value() {
    return new Binary(new RandomByteIterator(length).toArray());
  }

  private Document document(int number) {
    Document document = new Document("_id", key(number));
    for (int field = 0; field < fields; field++) {
      document.append("field" + field, value());
    }
    return document;
  }
}
