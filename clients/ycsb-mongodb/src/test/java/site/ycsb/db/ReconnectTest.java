package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static site.ycsb.db.Harness.values;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import site.ycsb.Status;

class ReconnectTest {
  @Test
  void operationsFailByNameWhileTheServerIsAwayAndWorkWhenItIsBack() throws IOException {
    try (Mongod mongod = Mongod.standalone();
        Harness harness = new Harness(Harness.properties(
            "mongodb.url=" + mongod.url("serverSelectionTimeoutMS=1000", "heartbeatFrequencyMS=500"),
            "mongodb.writeConcern=journaled"))) {
      assertEquals(Status.OK, harness.db.insert(Mongod.TABLE, "k", values("a", "1")));
      mongod.kill();
      Status away = harness.db.read(Mongod.TABLE, "k", null, new HashMap<>());
      assertTrue(away.getName().startsWith("ERROR_Mongo"), away.getName());
      mongod.start();
      assertEquals(Status.OK, harness.db.read(Mongod.TABLE, "k", null, new HashMap<>()));
      assertEquals(Status.OK, harness.db.update(Mongod.TABLE, "k", values("a", "2")));
      List<Document> errors = harness.finish().getList("errors", Document.class);
      assertEquals(1, errors.size());
      assertEquals("READ", errors.get(0).getString("operation"));
      assertEquals(away.getName(), "ERROR_" + errors.get(0).getString("name"));
    }
  }

  @Test
  void aServerThatNeverAnswersIsReportedAtTheStartWithItsAddress() {
    StartupException refused = assertThrows(StartupException.class, () -> new Harness(
        Harness.properties("mongodb.url=mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200")));
    assertTrue(refused.getMessage().startsWith("cannot use 127.0.0.1:1: "), refused.getMessage());
    assertTrue(!refused.getMessage().contains("secret"), refused.getMessage());
  }
}
