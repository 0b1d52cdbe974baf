package site.ycsb.db;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.result.DeleteResult;
import com.mongodb.client.result.UpdateResult;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/**
 * YCSB's operations on MongoDB, through the sync driver.
 *
 * <p>A record is a document with the key as {@code _id} and one field per YCSB field. Property names are those of
 * YCSB's documented MongoDB binding; the README beside the build file lists them with defaults and exact meaning.
 */
public class MongoDbClient extends DB {
  private static final String READ = "READ";
  private static final String SCAN = "SCAN";
  private static final String UPDATE = "UPDATE";
  private static final String DELETE = "DELETE";

  private static final BsonInt32 INCLUDE = new BsonInt32(1);
  private static final BsonInt32 EXCLUDE = new BsonInt32(0);
  private static final BsonDocument BY_KEY = new BsonDocument("_id", INCLUDE);

  private final Map<String, MongoCollection<BsonDocument>> collections = new HashMap<>();
  private SharedClient shared;
  private RunReport report;
  private InsertBuffer inserts;

  /**
   * Checks the properties and connects.
   *
   * <p>Here and not in {@link #init} because YCSB calls this in its main thread, where an exception ends the JVM with
   * exit code 1. It catches what {@code init()} throws, runs no operation and exits with 0.
   *
   * @throws StartupException when a property is refused or the deployment does not answer
   */
  @Override
  public void setProperties(Properties properties) {
    super.setProperties(properties);
    Settings settings = Settings.parse(properties);
    if (shared != null) {
      shared.release();
    }
    shared = SharedClient.acquire(settings);
    report = shared.report();
  }

  @Override
  public void init() {
    if (shared == null) {
      setProperties(getProperties());
    }
    inserts = new InsertBuffer(shared.settings(), report, getProperties());
    shared.awaitStart();
  }

  /** Sends the last, partial batch of inserts; the last thread publishes the report. */
  @Override
  public void cleanup() {
    if (inserts != null) {
      inserts.finish();
      inserts = null;
    }
    if (shared != null) {
      collections.clear();
      shared.release();
      shared = null;
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      FieldMap found = collection(table).find(byKey(key), FieldMap.class).projection(projection(fields)).first();
      if (found == null) {
        return Status.NOT_FOUND;
      }
      result.putAll(found);
      return Status.OK;
    } catch (RuntimeException e) {
      return report.failed(READ, e, 1);
    }
  }

  /** Reads records in key order, from {@code startKey} on. */
  @Override
  public Status scan(String table, String startKey, int recordCount, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    if (recordCount < 1) {
      // MongoDB takes a limit of 0 for "no limit" and would read the whole collection.
      return Status.BAD_REQUEST;
    }
    BsonDocument fromStart = new BsonDocument("_id", new BsonDocument("$gte", new BsonString(startKey)));
    // The server's first batch has 101 documents by default; a longer scan would be two commands or more.
    try (MongoCursor<FieldMap> cursor = collection(table).find(fromStart, FieldMap.class).sort(BY_KEY)
        .limit(recordCount).batchSize(recordCount).projection(projection(fields)).cursor()) {
      result.ensureCapacity(result.size() + recordCount);
      while (cursor.hasNext()) {
        result.add(cursor.next());
      }
      return Status.OK;
    } catch (RuntimeException e) {
      return report.failed(SCAN, e, 1);
    }
  }

  /** Sets the given fields of a record; the others keep their values. */
  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      BsonDocument set = new BsonDocument(values.size());
      putValues(set, values);
      UpdateResult updated = collection(table).updateOne(byKey(key), new BsonDocument("$set", set));
      return !updated.wasAcknowledged() || updated.getMatchedCount() > 0 ? Status.OK : Status.NOT_FOUND;
    } catch (RuntimeException e) {
      return report.failed(UPDATE, e, 1);
    }
  }

  /** Inserts a record, or puts it into the thread's batch. */
  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      if (inserts.isRetry(values)) {
        return inserts.retry();
      }
      BsonDocument document = new BsonDocument(values.size() + 1).append("_id", new BsonString(key));
      putValues(document, values);
      return inserts.insert(collection(table), document, values);
    } catch (RuntimeException e) {
      return report.failed(InsertBuffer.OPERATION, e, 1);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      DeleteResult deleted = collection(table).deleteOne(byKey(key));
      return !deleted.wasAcknowledged() || deleted.getDeletedCount() > 0 ? Status.OK : Status.NOT_FOUND;
    } catch (RuntimeException e) {
      return report.failed(DELETE, e, 1);
    }
  }

  private MongoCollection<BsonDocument> collection(String table) {
    return collections.computeIfAbsent(table, shared::collection);
  }

  private static BsonDocument byKey(String key) {
    return new BsonDocument("_id", new BsonString(key));
  }

  /** YCSB says "all fields" with null; {@code _id} is the key the caller has already. */
  private static BsonDocument projection(Set<String> fields) {
    if (fields == null || fields.isEmpty()) {
      return null;
    }
    BsonDocument projection = new BsonDocument(fields.size() + 1).append("_id", EXCLUDE);
    for (String field : fields) {
      projection.append(field, INCLUDE);
    }
    return projection;
  }

  private void putValues(BsonDocument document, Map<String, ByteIterator> values) {
    boolean strings = shared.settings().strings();
    for (Map.Entry<String, ByteIterator> entry : values.entrySet()) {
      byte[] bytes = entry.getValue().toArray();
      BsonValue value = strings ? new BsonString(new String(bytes, StandardCharsets.UTF_8)) : new BsonBinary(bytes);
      document.append(entry.getKey(), value);
    }
  }
}
