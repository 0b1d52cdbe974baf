package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static site.ycsb.db.Harness.values;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import site.ycsb.ByteIterator;
import site.ycsb.Status;

/** The commands the server receives, seen from the server: its profiler keeps the commands. */
class ReplicaSetTest {
  private static final int CANNOT_SATISFY_WRITE_CONCERN = 100;

  private static Mongod mongod;

  @BeforeAll
  static void startMongod() throws IOException {
    mongod = Mongod.replicaSet();
  }

  @AfterAll
  static void stopMongod() throws IOException {
    mongod.close();
  }

  @BeforeEach
  void startProfiler() {
    mongod.table().drop();
    mongod.database().runCommand(new Document("profile", 2));
  }

  @AfterEach
  void stopProfiler() {
    mongod.database().runCommand(new Document("profile", 0));
    mongod.database().getCollection("system.profile").drop();
  }

  private static Document profiled(String command) {
    return mongod.database().getCollection("system.profile").find(new Document("command." + command, Mongod.TABLE))
        .first().get("command", Document.class);
  }

  @ParameterizedTest
  @CsvSource({"acknowledged,1,", "journaled,1,true", "majority,majority,"})
  void theWriteConcernIsSentWithEveryWrite(String name, String w, Boolean journal) {
    try (Harness harness = new Harness(mongod, "mongodb.writeConcern=" + name)) {
      assertEquals(Status.OK, harness.db.insert(Mongod.TABLE, "k", values("a", "1")));
    }
    Document concern = profiled("insert").get("writeConcern", Document.class);
    assertEquals(w, String.valueOf(concern.get("w")));
    assertEquals(journal, concern.getBoolean("j"));
  }

  @Test
  void withoutAnyWriteConcernTheServersDefaultIsNotLeftToChance() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.insert(Mongod.TABLE, "k", values("a", "1"));
    }
    assertEquals(1, profiled("insert").get("writeConcern", Document.class).get("w"));
  }

  @Test
  void theReadConcernIsSentWithReads() {
    try (Harness harness = new Harness(mongod, "mongodb.readConcern=majority", "mongodb.readPreference=nearest")) {
      assertEquals(Status.NOT_FOUND, harness.db.read(Mongod.TABLE, "k", null, new HashMap<>()));
    }
    assertEquals("majority", profiled("find").get("readConcern", Document.class).getString("level"));
  }

  @Test
  void withoutAReadConcernNoneIsSent() {
    try (Harness harness = new Harness(mongod)) {
      harness.db.read(Mongod.TABLE, "k", null, new HashMap<>());
    }
    Document concern = profiled("find").get("readConcern", Document.class);
    assertNull(concern == null ? null : concern.getString("level"));
  }

  @Test
  void aWriteConcernThatCannotBeMetIsAnErrorAlthoughTheDocumentIsStored() {
    try (Harness harness = new Harness(mongod, "mongodb.writeConcern=replica_acknowledged")) {
      Map<String, ByteIterator> values = values("a", "1");
      assertEquals("ERROR_100", harness.db.insert(Mongod.TABLE, "k", values).getName());
      assertEquals("ERROR_100", harness.db.insert(Mongod.TABLE, "k", values).getName(), "a retry has nothing to send");
      assertEquals(1, mongod.table().countDocuments());
      assertEquals("ERROR_100", harness.db.update(Mongod.TABLE, "k", values("a", "2")).getName());
      Document insertError = harness.finish().getList("errors", Document.class).get(0);
      assertEquals("INSERT", insertError.getString("operation"));
      assertEquals(CANNOT_SATISFY_WRITE_CONCERN, insertError.getInteger("code"));
      assertEquals(1, ((Number) insertError.get("count")).intValue());
    }
  }
}
