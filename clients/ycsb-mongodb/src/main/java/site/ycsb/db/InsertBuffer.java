package site.ycsb.db;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.bulk.BulkWriteError;
import com.mongodb.bulk.WriteConcernError;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.WriteModel;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.bson.BsonDocument;
import site.ycsb.ByteIterator;
import site.ycsb.Status;
import site.ycsb.measurements.Measurements;

/**
 * Collects one thread's inserts and sends them as one command when the batch is full.
 *
 * <p>Batches are unordered: a document that fails does not keep the later ones of its batch from being stored, and each
 * failure is counted by its code. With a batch size of 1 every insert is a full batch.
 */
final class InsertBuffer {
  static final String OPERATION = "INSERT";

  private static final InsertManyOptions UNORDERED_INSERT = new InsertManyOptions().ordered(false);
  private static final BulkWriteOptions UNORDERED_BULK = new BulkWriteOptions().ordered(false);
  private static final ReplaceOptions UPSERT = new ReplaceOptions().upsert(true);

  private final Settings settings;
  private final RunReport report;
  private final Properties properties;
  private final BufferedStatus buffered = new BufferedStatus();

  private MongoCollection<BsonDocument> collection;
  private List<BsonDocument> pending;

  /** The values whose insert failed, with its status; while set, {@link #pending} holds what may be sent again. */
  private Map<String, ByteIterator> failedValues;
  private Status failedStatus;

  InsertBuffer(Settings settings, RunReport report, Properties properties) {
    this.settings = settings;
    this.report = report;
    this.properties = properties;
    this.pending = new ArrayList<>(settings.batchSize());
    if (settings.batchSize() > 1) {
      BufferedStatus.track(properties);
    }
  }

  /**
   * Whether this call is YCSB trying a failed insert again. It hands over the same map, whose values were used up by
   * the first attempt: a document made of them would be empty.
   */
  boolean isRetry(Map<String, ByteIterator> values) {
    return values == failedValues;
  }

  /** Sends again what failed; documents of the batch that were stored are not sent twice. */
  Status retry() {
    if (pending.isEmpty()) {
      // All documents were stored, only their write concern was not met: there is nothing to send.
      return failedStatus;
    }
    return send(failedValues);
  }

  /** Adds a document and sends the batch when it is full. */
  Status insert(MongoCollection<BsonDocument> target, BsonDocument document, Map<String, ByteIterator> values) {
    if (failedValues != null) {
      // The workload went on to another record: what failed is counted and given up.
      failedValues = null;
      pending.clear();
    }
    if (target != collection) {
      finish();
      collection = target;
    }
    pending.add(document);
    return pending.size() < settings.batchSize() ? buffered.renewed() : send(values);
  }

  /**
   * Sends a last, partial batch. YCSB would file its time under CLEANUP and nowhere else, so it is measured here, by
   * the rules of YCSB's wrapper.
   */
  void finish() {
    if (failedValues != null || pending.isEmpty()) {
      return;
    }
    Measurements measurements = Measurements.getMeasurements();
    long intended = measurements.getIntendedtartTimeNs();
    long start = System.nanoTime();
    Status status = send(Map.of());
    long end = System.nanoTime();
    String series = series(status);
    measurements.measure(series, (int) TimeUnit.NANOSECONDS.toMicros(end - start));
    measurements.measureIntended(series, (int) TimeUnit.NANOSECONDS.toMicros(end - intended));
    measurements.reportStatus(OPERATION, status);
  }

  private String series(Status status) {
    if (status.isOk()) {
      return OPERATION;
    }
    boolean each = Boolean.parseBoolean(properties.getProperty("reportlatencyforeacherror", "false"));
    List<String> tracked = List.of(properties.getProperty("latencytrackederrors", "").split(","));
    return OPERATION + "-" + (each || tracked.contains(status.getName()) ? status.getName() : "FAILED");
  }

  private Status send(Map<String, ByteIterator> values) {
    int documents = pending.size();
    List<BsonDocument> failed = new ArrayList<>();
    Status status = Status.OK;
    try {
      write();
    } catch (MongoBulkWriteException e) {
      status = rejected(e, failed);
    } catch (RuntimeException e) {
      status = report.failed(OPERATION, e, documents);
      failed.addAll(pending);
    }
    report.insertCommand(documents, failed.size());
    if (status.isOk()) {
      pending.clear();
      failedValues = null;
    } else {
      pending = failed;
      failedValues = values;
      failedStatus = status;
    }
    return status;
  }

  private void write() {
    if (!settings.upsert()) {
      collection.insertMany(pending, UNORDERED_INSERT);
      return;
    }
    List<WriteModel<BsonDocument>> writes = new ArrayList<>(pending.size());
    for (BsonDocument document : pending) {
      writes.add(new ReplaceOneModel<>(new BsonDocument("_id", document.get("_id")), document, UPSERT));
    }
    collection.bulkWrite(writes, UNORDERED_BULK);
  }

  /** Counts every rejected document by its code; the batch gets the status of the first. */
  private Status rejected(MongoBulkWriteException e, List<BsonDocument> failed) {
    Status first = null;
    for (BulkWriteError error : e.getWriteErrors()) {
      failed.add(pending.get(error.getIndex()));
      Status status = report.failed(OPERATION, error.getCode(), "", error.getMessage(), 1);
      first = first == null ? status : first;
    }
    WriteConcernError concern = e.getWriteConcernError();
    if (concern != null) {
      Status status = report.failed(OPERATION, concern.getCode(), concern.getCodeName(), concern.getMessage(),
          pending.size() - failed.size());
      first = first == null ? status : first;
    }
    return first;
  }
}
