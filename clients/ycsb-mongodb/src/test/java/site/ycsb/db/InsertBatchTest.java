package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static site.ycsb.db.Harness.values;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
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

class InsertBatchTest {
  private static final int UNKNOWN_ERROR = 8;

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

  private static Status insert(Harness harness, String... keys) {
    Status last = null;
    for (String key : keys) {
      last = harness.db.insert(Mongod.TABLE, key, values("a", key));
    }
    return last;
  }

  private static TreeSet<String> keys() {
    return mongod.table().find().map(document -> document.getString("_id")).into(new TreeSet<>());
  }

  private static void assertInserts(Document report, int commands, int documents, int failed) {
    Document inserts = report.get("inserts", Document.class);
    assertEquals(List.of(commands, documents, failed), List.of(((Number) inserts.get("commands")).intValue(),
        ((Number) inserts.get("documents")).intValue(), ((Number) inserts.get("failed")).intValue()));
  }

  @Test
  void nothingIsSentBeforeTheBatchIsFull() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=3")) {
      insert(harness, "a", "b");
      assertEquals(0, mongod.table().countDocuments());
      assertEquals(Status.OK, insert(harness, "c"));
      assertEquals(3, mongod.table().countDocuments());
    }
  }

  @Test
  void theInsertSeriesHoldsOneLatencyPerBatch() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=5")) {
      for (int i = 0; i < 20; i++) {
        insert(harness, "k" + i);
      }
      assertEquals(4, harness.measured("INSERT"));
      assertEquals(16, harness.measured("INSERT-BATCHED_OK"));
      assertEquals(0, harness.measured("INSERT-FAILED"));
      assertEquals(4, harness.returned("INSERT", "OK"));
      assertEquals(16, harness.returned("INSERT", "BATCHED_OK"));
    }
  }

  @Test
  void aBufferedInsertIsOkForTheWorkload() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=2")) {
      for (String key : List.of("a", "b", "c")) {
        Status status = insert(harness, key);
        assertTrue(status.isOk());
        assertTrue(status.isOk());
      }
    }
  }

  @Test
  void trackedErrorsOfTheUserAreKept() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=2", "latencytrackederrors=ERROR_11000")) {
      insert(harness, "a", "a");
      assertEquals(1, harness.measured("INSERT-ERROR_11000"));
      assertEquals(1, harness.measured("INSERT-BATCHED_OK"));
    }
  }

  @Test
  void theLastPartialBatchIsSentMeasuredAndCountedAtCleanup() {
    Harness harness = new Harness(mongod, "mongodb.batchsize=10");
    insert(harness, "a", "b", "c");
    assertInserts(harness.finish(), 1, 3, 0);
    assertEquals(1, harness.measured("INSERT"));
    assertEquals(1, harness.returned("INSERT", "OK"));
    assertEquals(3, mongod.table().countDocuments());
  }

  @Test
  void aLastPartialBatchThatFailsIsMeasuredAsFailed() {
    mongod.table().insertOne(new Document("_id", "b"));
    Harness harness = new Harness(mongod, "mongodb.batchsize=10");
    insert(harness, "a", "b");
    assertInserts(harness.finish(), 1, 2, 1);
    assertEquals(0, harness.measured("INSERT"));
    assertEquals(1, harness.measured("INSERT-FAILED"));
    assertEquals(1, harness.returned("INSERT", "ERROR_11000"));
  }

  @Test
  void anErrorInTheMiddleOfABatchCostsOnlyItsOwnDocument() {
    mongod.table().insertOne(new Document("_id", "b"));
    mongod.table().insertOne(new Document("_id", "d"));
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=5")) {
      assertEquals("ERROR_11000", insert(harness, "a", "b", "c", "d", "e").getName());
      assertEquals(new TreeSet<>(List.of("a", "b", "c", "d", "e")), keys());
      assertEquals(1, harness.measured("INSERT-FAILED"));
      Document report = harness.finish();
      assertInserts(report, 1, 5, 2);
      Document error = report.getList("errors", Document.class).get(0);
      assertEquals("DuplicateKey", error.getString("name"));
      assertEquals(2, ((Number) error.get("count")).intValue());
    }
  }

  @Test
  void aCommandThatFailsCostsAllItsDocuments() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=3")) {
      mongod.failNext("insert", UNKNOWN_ERROR, 1);
      assertEquals("ERROR_8", insert(harness, "a", "b", "c").getName());
      Document report = harness.finish();
      assertInserts(report, 1, 3, 3);
      assertEquals(3, ((Number) report.getList("errors", Document.class).get(0).get("count")).intValue());
    }
    assertEquals(0, mongod.table().countDocuments());
  }

  @ParameterizedTest
  @ValueSource(strings = {"1", "3"})
  void aRetryOfYcsbSendsWhatFailedWithItsValues(String batchSize) {
    mongod.table().insertOne(new Document("_id", "b"));
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=" + batchSize)) {
      if (batchSize.equals("3")) {
        insert(harness, "a", "b");
      }
      String last = batchSize.equals("3") ? "c" : "b";
      Map<String, ByteIterator> values = values("a", last);
      assertEquals("ERROR_11000", harness.db.insert(Mongod.TABLE, last, values).getName());
      mongod.table().deleteOne(new Document("_id", "b"));
      assertEquals(Status.OK, harness.db.insert(Mongod.TABLE, last, values));
    }
    Document stored = mongod.table().find(new Document("_id", "b")).first();
    assertArrayEquals("b".getBytes(), stored.get("a", Binary.class).getData());
  }

  @Test
  void whatFailedIsGivenUpWhenTheWorkloadGoesOn() {
    mongod.table().insertOne(new Document("_id", "b"));
    Harness harness = new Harness(mongod, "mongodb.batchsize=2");
    insert(harness, "a", "b", "c", "d");
    insert(harness, "e");
    assertInserts(harness.finish(), 3, 5, 1);
    assertEquals(new TreeSet<>(List.of("a", "b", "c", "d", "e")), keys());
  }

  @Test
  void upsertReplacesDocumentsThatAreThere() {
    mongod.table().insertOne(new Document("_id", "b").append("old", 1));
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=3", "mongodb.upsert=true")) {
      assertEquals(Status.OK, insert(harness, "a", "b", "c"));
    }
    assertEquals(3, mongod.table().countDocuments());
    Document replaced = mongod.table().find(new Document("_id", "b")).first();
    assertFalse(replaced.containsKey("old"));
    assertTrue(replaced.containsKey("a"));
  }

  @Test
  void withoutUpsertAKeyThatIsThereIsAnError() {
    mongod.table().insertOne(new Document("_id", "a").append("old", 1));
    try (Harness harness = new Harness(mongod)) {
      assertEquals("ERROR_11000", insert(harness, "a").getName());
    }
    assertTrue(mongod.table().find().first().containsKey("old"));
  }

  @Test
  void insertsOfAnotherTableDoNotMixWithTheBatch() {
    try (Harness harness = new Harness(mongod, "mongodb.batchsize=2")) {
      insert(harness, "a");
      harness.db.insert("other", "b", values("a", "1"));
    }
    assertEquals(new TreeSet<>(List.of("a")), keys());
    assertEquals(1, mongod.database().getCollection("other").countDocuments());
  }
}
