package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static site.ycsb.db.Harness.strings;
import static site.ycsb.db.Harness.values;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import org.bson.Document;
import org.bson.types.Binary;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import site.ycsb.ByteIterator;
import site.ycsb.Status;

class OperationsTest {
  private static final int MAX_TIME_EXPIRED = 50;

  private static Mongod mongod;

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

  private static Map<String, String> read(Harness harness, String key, Set<String> fields) {
    Map<String, ByteIterator> result = new HashMap<>();
    assertEquals(Status.OK, harness.db.read(Mongod.TABLE, key, fields, result));
    return strings(result);
  }

  private static long command(String name, String counter) {
    Document commands = mongod.admin().runCommand(new Document("serverStatus", 1)).get("metrics", Document.class)
        .get("commands", Document.class);
    return commands.get(name, Document.class).getLong(counter);
  }

  @Test
  void insertStoresTheKeyAsIdAndTheValuesAsBinary() {
    try (Harness harness = new Harness(mongod)) {
      assertEquals(Status.OK, harness.db.insert(Mongod.TABLE, "k", values("a", "1", "b", "2")));
    }
    Document stored = mongod.table().find().first();
    assertEquals(Set.of("_id", "a", "b"), stored.keySet());
    assertEquals("k", stored.getString("_id"));
    assertEquals(new Binary("1".getBytes()), stored.get("a"));
  }

  @Test
  void valuesAreStoredAsStringsWhenAskedFor() {
    try (Harness harness = new Harness(mongod, "mongodb.valuetype=string")) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1"));
      harness.db.update(Mongod.TABLE, "k", values("b", "2"));
      assertEquals(Map.of("a", "1", "b", "2"), read(harness, "k", null));
    }
    assertInstanceOf(String.class, mongod.table().find().first().get("a"));
    assertInstanceOf(String.class, mongod.table().find().first().get("b"));
  }

  @Test
  void stringsBeyondAsciiAreReadAsTheyAreStored() {
    mongod.table().insertOne(new Document("_id", "k").append("a", "größer"));
    try (Harness harness = new Harness(mongod)) {
      Map<String, ByteIterator> result = new HashMap<>();
      harness.db.read(Mongod.TABLE, "k", null, result);
      assertEquals("größer", result.get("a").toString());
    }
  }

  @Test
  void readReturnsAllFieldsWithoutTheKey() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1", "b", "2"));
      assertEquals(Map.of("a", "1", "b", "2"), read(harness, "k", null));
    }
  }

  @Test
  void readAsksTheServerForTheGivenFieldsOnly() {
    mongod.database().runCommand(new Document("profile", 2));
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1", "b", "2", "c", "3"));
      assertEquals(Map.of("a", "1", "c", "3"), read(harness, "k", Set.of("a", "c")));
    } finally {
      mongod.database().runCommand(new Document("profile", 0));
    }
    Document find = mongod.database().getCollection("system.profile").find(new Document("command.find", Mongod.TABLE))
        .first();
    assertEquals(Set.of("_id", "a", "c"), find.get("command", Document.class).get("projection", Document.class)
        .keySet());
    mongod.database().getCollection("system.profile").drop();
  }

  @Test
  void readOfAMissingKeyIsNotFoundAndNoError() {
    try (Harness harness = new Harness(mongod)) {
      assertEquals(Status.NOT_FOUND, harness.db.read(Mongod.TABLE, "missing", null, new HashMap<>()));
      assertEquals(List.of(), harness.finish().getList("errors", Document.class));
    }
  }

  @Test
  void updateSetsItsFieldsAndKeepsTheOthers() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1", "b", "2"));
      assertEquals(Status.OK, harness.db.update(Mongod.TABLE, "k", values("b", "3")));
      assertEquals(Map.of("a", "1", "b", "3"), read(harness, "k", null));
    }
  }

  @Test
  void updateOfAMissingKeyIsNotFoundAndMakesNoDocument() {
    try (Harness harness = new Harness(mongod, "mongodb.upsert=true")) {
      assertEquals(Status.NOT_FOUND, harness.db.update(Mongod.TABLE, "missing", values("a", "1")));
    }
    assertEquals(0, mongod.table().countDocuments());
  }

  @Test
  void deleteRemovesOneDocument() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1"));
      harness.db.insert(Mongod.TABLE, "l", values("a", "1"));
      assertEquals(Status.OK, harness.db.delete(Mongod.TABLE, "k"));
      assertEquals(Status.NOT_FOUND, harness.db.delete(Mongod.TABLE, "k"));
    }
    assertEquals("l", mongod.table().find().first().getString("_id"));
  }

  @Test
  void scanReturnsRecordsInKeyOrderFromTheStartKeyOn() {
    try (Harness harness = new Harness(mongod)) {
      for (String key : List.of("d", "a", "e", "c", "b")) {
        harness.db.insert(Mongod.TABLE, key, values("own", key, "other", "x"));
      }
      Vector<HashMap<String, ByteIterator>> result = new Vector<>();
      assertEquals(Status.OK, harness.db.scan(Mongod.TABLE, "b", 3, Set.of("own"), result));
      assertEquals(List.of(Map.of("own", "b"), Map.of("own", "c"), Map.of("own", "d")),
          result.stream().map(Harness::strings).toList());
    }
  }

  @Test
  void aLongScanIsOneCommand() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=500")) {
      for (int i = 0; i < 500; i++) {
        harness.db.insert(Mongod.TABLE, "k" + i, values("a", "1"));
      }
      long getMore = command("getMore", "total");
      long killCursors = command("killCursors", "total");
      Vector<HashMap<String, ByteIterator>> result = new Vector<>();
      harness.db.scan(Mongod.TABLE, "k", 300, null, result);
      assertEquals(300, result.size());
      assertEquals(getMore, command("getMore", "total"));
      assertEquals(killCursors, command("killCursors", "total"));
    }
  }

  @Test
  void aScanOfNothingIsABadRequestAndNotAScanOfEverything() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1"));
      Vector<HashMap<String, ByteIterator>> result = new Vector<>();
      assertEquals(Status.BAD_REQUEST, harness.db.scan(Mongod.TABLE, "a", 0, null, result));
      assertEquals(0, result.size());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"find", "update", "delete", "insert"})
  void serverErrorsAreCountedByOperationAndCode(String command) {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1"));
      mongod.failNext(command, MAX_TIME_EXPIRED, 2);
      for (int i = 0; i < 3; i++) {
        Status status = run(harness, command, i);
        assertEquals(i < 2 ? "ERROR_50" : "OK", status.getName());
      }
      String operation = command.equals("find") ? "READ" : command.toUpperCase();
      assertEquals(2, harness.returned(operation, "ERROR_50"));
      assertEquals(2, harness.measured(operation + "-FAILED"));
      Document error = harness.finish().getList("errors", Document.class).get(0);
      assertEquals(operation, error.getString("operation"));
      assertEquals(MAX_TIME_EXPIRED, error.getInteger("code"));
      assertEquals(2, ((Number) error.get("count")).intValue());
      assertTrue(error.getString("first").contains("failCommand"), error.toJson());
    }
  }

  private static Status run(Harness harness, String command, int attempt) {
    return switch (command) {
      case "find" -> harness.db.read(Mongod.TABLE, "k", null, new HashMap<>());
      case "update" -> harness.db.update(Mongod.TABLE, "k", values("a", "2"));
      case "delete" -> harness.db.delete(Mongod.TABLE, "k");
      default -> harness.db.insert(Mongod.TABLE, "new" + attempt, values("a", "2"));
    };
  }

  @Test
  void aScanThatFailsIsCountedAsAScan() {
    try (Harness harness = new Harness(mongod)) {
      mongod.failNext("find", MAX_TIME_EXPIRED, 1);
      assertEquals("ERROR_50", harness.db.scan(Mongod.TABLE, "a", 1, null, new Vector<>()).getName());
      assertEquals("SCAN", harness.finish().getList("errors", Document.class).get(0).getString("operation"));
    }
  }

  @Test
  void aDocumentTheDriverRefusesIsAnErrorByName() {
    try (Harness harness = new Harness(mongod)) {
      Status status = harness.db.insert(Mongod.TABLE, "k", values("a", "1".repeat(17 << 20)));
      assertEquals("ERROR_BsonMaximumSizeExceededException", status.getName());
      Document error = harness.finish().getList("errors", Document.class).get(0);
      assertEquals("BsonMaximumSizeExceededException", error.getString("name"));
    }
  }

  @Test
  void unacknowledgedWritesReachTheServerAndAreOk() {
    try (Harness harness = new Harness(mongod, "mongodb.writeConcern=unacknowledged", "mongodb.maxconnections=1")) {
      assertEquals(Status.OK, harness.db.insert(Mongod.TABLE, "k", values("a", "1")));
      assertEquals(Status.OK, harness.db.update(Mongod.TABLE, "k", values("a", "2")));
      assertEquals(Status.OK, harness.db.delete(Mongod.TABLE, "missing"));
      // One connection: the read comes after the writes.
      assertEquals(Map.of("a", "2"), read(harness, "k", null));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"snappy", "zlib", "zstd"})
  void compressorsCompress(String name) {
    long before = compressedBytes(name);
    try (Harness harness = new Harness(mongod, "mongodb.compressors=" + name)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1".repeat(1000)));
    }
    assertTrue(compressedBytes(name) > before);
  }

  private static long compressedBytes(String name) {
    Document compression = mongod.admin().runCommand(new Document("serverStatus", 1)).get("network", Document.class)
        .get("compression", Document.class);
    return compression.get(name, Document.class).get("decompressor", Document.class).getLong("bytesOut");
  }

  @Test
  void oneClientServesAllThreadsUntilTheLastHasLeft() {
    Settings settings = Settings.parse(Harness.properties("mongodb.url=" + mongod.url()));
    SharedClient first = SharedClient.acquire(settings);
    SharedClient second = SharedClient.acquire(Settings.parse(Harness.properties("mongodb.url=" + mongod.url())));
    assertSame(first, second);
    first.release();
    assertNull(second.collection(Mongod.TABLE).find().first());
    second.release();
    SharedClient third = SharedClient.acquire(settings);
    assertNotSame(first, third);
    third.release();
  }
}
