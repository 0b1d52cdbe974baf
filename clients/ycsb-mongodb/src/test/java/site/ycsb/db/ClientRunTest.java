package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.HdrHistogram.EncodableHistogram;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogReader;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Whole runs of YCSB's own client in a JVM of their own, as users and the engine start them. */
class ClientRunTest {
  private static Mongod mongod;

  @TempDir
  Path folder;

  @BeforeAll
  static void startMongod() throws IOException {
    mongod = Mongod.standalone();
  }

  @AfterAll
  static void stopMongod() throws IOException {
    mongod.close();
  }

  @BeforeEach
  void emptyTable() {
    mongod.table().drop();
  }

  private record Outcome(int exitCode, String out, String err) {
  }

  private Process start(String phase, String... properties) throws IOException {
    List<String> command = new ArrayList<>(List.of(
        Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
        System.getProperty("java.class.path"), "site.ycsb.Client", phase, "-db", "site.ycsb.db.MongoDbClient"));
    List<String> all = new ArrayList<>(List.of("workload=site.ycsb.workloads.CoreWorkload", "recordcount=1050",
        "operationcount=1000", "threadcount=3", "mongodb.url=" + mongod.url()));
    all.addAll(Arrays.asList(properties));
    for (String property : all) {
      command.add("-p");
      command.add(property);
    }
    return new ProcessBuilder(command).redirectOutput(file("out")).redirectError(file("err")).start();
  }

  private File file(String name) {
    return folder.resolve(name).toFile();
  }

  private Outcome run(String phase, String... properties) throws IOException {
    int exitCode = start(phase, properties).onExit().join().exitValue();
    return new Outcome(exitCode, Files.readString(folder.resolve("out")), Files.readString(folder.resolve("err")));
  }

  private Document report() throws IOException {
    return Document.parse(Files.readString(folder.resolve("report.json")));
  }

  private Set<String> histogramFiles() throws IOException {
    try (var files = Files.list(folder)) {
      return files.map(path -> path.getFileName().toString()).filter(name -> name.endsWith(".hdr"))
          .collect(Collectors.toCollection(TreeSet::new));
    }
  }

  private long histogramCount(String name) throws IOException {
    long count = 0;
    try (HistogramLogReader reader = new HistogramLogReader(file(name))) {
      for (EncodableHistogram next = reader.nextIntervalHistogram(); next != null;
          next = reader.nextIntervalHistogram()) {
        count += ((Histogram) next).getTotalCount();
      }
    }
    return count;
  }

  @Test
  void aLoadInBatchesStoresEveryRecordAndLogsTheLatencyOfBatches() throws IOException {
    Outcome outcome = run("-load", "mongodb.batchsize=100", "hdrhistogram.fileoutput=true",
        "hdrhistogram.output.path=" + folder + "/", "mongodb.report=" + folder.resolve("report.json"));
    assertEquals(0, outcome.exitCode(), outcome.err());
    assertEquals(1050, mongod.table().countDocuments());
    // 350 records per thread: three full batches and a last one of 50.
    assertEquals(Set.of("CLEANUP.hdr", "INSERT-BATCHED_OK.hdr", "INSERT.hdr"), histogramFiles());
    assertEquals(12, histogramCount("INSERT.hdr"));
    assertTrue(outcome.out().contains("[INSERT], Operations, 12\n"), outcome.out());
    assertEquals(1050, ((Number) report().get("inserts", Document.class).get("documents")).intValue());
    assertTrue(outcome.err().contains("[MONGODB-REPORT] {\"binding\""), outcome.err());
  }

  @Test
  void aRunReadsBackExactlyWhatWasLoadedAndKeepsIntendedLatenciesApart() throws IOException {
    assertEquals(0, run("-load", "dataintegrity=true").exitCode());
    Outcome outcome = run("-t", "dataintegrity=true", "readproportion=0.5", "updateproportion=0.5", "target=2000",
        "measurement.interval=both", "hdrhistogram.fileoutput=true", "hdrhistogram.output.path=" + folder + "/run-");
    assertEquals(0, outcome.exitCode(), outcome.err());
    assertFalse(outcome.out().contains("UNEXPECTED_STATE"), outcome.out());
    assertTrue(outcome.out().contains("[VERIFY], Return=OK, "), outcome.out());
    assertEquals(Set.of("run-CLEANUP.hdr", "run-Intended-CLEANUP.hdr", "run-Intended-READ.hdr",
        "run-Intended-UPDATE.hdr", "run-READ.hdr", "run-UPDATE.hdr", "run-VERIFY.hdr"), histogramFiles());
    assertEquals(histogramCount("run-READ.hdr"), histogramCount("run-Intended-READ.hdr"));
    assertEquals(1000, histogramCount("run-READ.hdr") + histogramCount("run-UPDATE.hdr"));
  }

  @Test
  void aRefusedPropertyEndsTheClientWithOneLineAndExitCodeOne() throws IOException {
    Outcome outcome = run("-load", "mongodb.batchsizes=100");
    assertEquals(1, outcome.exitCode());
    assertTrue(outcome.err().contains("ycsb-mongodb: unknown property mongodb.batchsizes; did you mean"
        + " mongodb.batchsize?"), outcome.err());
    assertFalse(outcome.err().contains("\tat "), outcome.err());
  }

  @Test
  void aClientThatIsTerminatedLeavesItsReport() throws IOException {
    Process client = start("-load", "recordcount=100000000", "mongodb.report=" + folder.resolve("report.json"));
    while (mongod.table().estimatedDocumentCount() < 100 && client.isAlive()) {
      Thread.onSpinWait();
    }
    assertTrue(client.isAlive(), Files.readString(folder.resolve("err")));
    client.destroy();
    client.onExit().join();
    assertTrue(((Number) report().get("inserts", Document.class).get("documents")).intValue() >= 100);
  }

  @Test
  void aClientSaysThatItIsReadyAndItsThreadsJoinRungByRungFromTheStartItIsGiven() throws IOException {
    assertEquals(0, run("-load").exitCode());
    Path start = folder.resolve("start");
    Process client = start("-t", "mongodb.startat=@" + start, "mongodb.rungs=1,3", "mongodb.rungseconds=1",
        "target=300");
    while (client.isAlive() && !Files.readString(folder.resolve("err")).contains("ycsb-mongodb: ready")) {
      Thread.onSpinWait();
    }
    long at = System.currentTimeMillis() + 500;
    Path part = Files.writeString(folder.resolve("part"), String.valueOf(at));
    Files.move(part, start);
    assertEquals(0, client.onExit().join().exitValue(), Files.readString(folder.resolve("err")));
    assertTrue(System.currentTimeMillis() >= at + 1000 + 3000, "the last threads take 1 s of waiting and 3 s of work");
  }

  @Test
  void aClientThatIsLateSaysByHowMuch() throws IOException {
    assertEquals(0, run("-load", "mongodb.startat=1000", "mongodb.report=" + folder.resolve("report.json")).exitCode());
    assertTrue(((Number) report().get("late_ms")).longValue() > 1000);
    assertEquals(1050, mongod.table().countDocuments());
  }
}
