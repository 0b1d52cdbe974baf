package site.ycsb.db;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoWriteConcernException;
import com.mongodb.MongoWriteException;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;
import site.ycsb.Status;

/** Counts what YCSB's own output cannot tell: insert commands and documents, and errors by operation and code. */
final class RunReport {
  private static final int DUPLICATE_KEY = 11000;

  /** One kind of error. {@code code} is the server's, or the driver's own (negative) where no server answered. */
  private record Kind(String operation, int code, String name) {
  }

  private record Tally(String firstMessage, LongAdder count) {
  }

  private final Map<Kind, Tally> errors = new ConcurrentHashMap<>();
  private final Map<String, Status> statuses = new ConcurrentHashMap<>();
  private final LongAdder insertCommands = new LongAdder();
  private final LongAdder insertDocuments = new LongAdder();
  private final LongAdder insertFailures = new LongAdder();

  /** Counts one insert command of the batch loop: documents sent, and how many of them failed. */
  void insertCommand(int documents, int failed) {
    insertCommands.increment();
    insertDocuments.add(documents);
    insertFailures.add(failed);
  }

  /**
   * Counts a failed operation.
   *
   * @param affected operations that failed by it: for a batch, its documents
   * @return the status that carries the error's code to YCSB
   */
  Status failed(String operation, RuntimeException failure, int affected) {
    if (failure instanceof MongoWriteException write) {
      return failed(operation, write.getError().getCode(), "", write.getError().getMessage(), affected);
    }
    if (failure instanceof MongoWriteConcernException concern) {
      return failed(operation, concern.getWriteConcernError().getCode(), concern.getWriteConcernError().getCodeName(),
          concern.getWriteConcernError().getMessage(), affected);
    }
    if (failure instanceof MongoCommandException command) {
      return failed(operation, command.getErrorCode(), command.getErrorCodeName(), command.getErrorMessage(), affected);
    }
    int code = failure instanceof MongoException known ? known.getCode() : 0;
    return failed(operation, code, failure.getClass().getSimpleName(), failure.getMessage(), affected);
  }

  /** Counts a failed operation whose code is known; {@code name} may be empty, as servers name no write errors. */
  Status failed(String operation, int code, String name, String message, int affected) {
    String shown = name == null || name.isEmpty() ? (code == DUPLICATE_KEY ? "DuplicateKey" : "WriteError") : name;
    errors.computeIfAbsent(new Kind(operation, code, shown), kind -> firstSeen(kind, message)).count().add(affected);
    return statuses.computeIfAbsent(code > 0 ? "ERROR_" + code : "ERROR_" + shown,
        text -> new Status(text, "MongoDB: " + shown));
  }

  /** Says an error once, when it is new; a client that lost its server would otherwise write a line per operation. */
  private static Tally firstSeen(Kind kind, String message) {
    String safe = Settings.withoutPassword(message);
    System.err.println("ycsb-mongodb: " + kind.operation() + " failed with " + kind.code() + " " + kind.name()
        + " (further ones are only counted): " + safe);
    return new Tally(safe, new LongAdder());
  }

  /** The report as one line of JSON; its keys are documented in the README. */
  String json(Settings settings, String version, String driver, long lateMillis) {
    List<BsonDocument> failures = errors.entrySet().stream()
        .sorted(Map.Entry.comparingByKey(Comparator.comparing(Kind::operation).thenComparing(Kind::code)
            .thenComparing(Kind::name)))
        .map(entry -> new BsonDocument("operation", new BsonString(entry.getKey().operation()))
            .append("code", new BsonInt32(entry.getKey().code()))
            .append("name", new BsonString(entry.getKey().name()))
            .append("count", new BsonInt64(entry.getValue().count().sum()))
            .append("first", new BsonString(entry.getValue().firstMessage())))
        .collect(Collectors.toList());
    return new BsonDocument("binding", new BsonString(version))
        .append("driver", new BsonString(driver))
        .append("batchsize", new BsonInt32(settings.batchSize()))
        .append("late_ms", new BsonInt64(lateMillis))
        .append("inserts", new BsonDocument("commands", new BsonInt64(insertCommands.sum()))
            .append("documents", new BsonInt64(insertDocuments.sum()))
            .append("failed", new BsonInt64(insertFailures.sum())))
        .append("errors", new BsonArray(failures))
        .toJson(JsonWriterSettings.builder().outputMode(JsonMode.RELAXED).build());
  }
}
