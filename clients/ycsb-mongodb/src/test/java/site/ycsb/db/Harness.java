package site.ycsb.db;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.htrace.core.HTraceConfiguration;
import org.apache.htrace.core.Tracer;
import org.bson.Document;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.DBFactory;
import site.ycsb.StringByteIterator;
import site.ycsb.UnknownDBException;
import site.ycsb.measurements.Measurements;
import site.ycsb.measurements.exporter.MeasurementsExporter;

/** The binding as YCSB makes it, inside the wrapper that measures, with its report at hand. */
final class Harness implements AutoCloseable {
  final DB db;
  private final Path report;
  private final Map<String, Double> measuredBefore;
  private boolean open = true;

  Harness(Mongod mongod, String... properties) {
    this(properties("mongodb.url=" + mongod.url("serverSelectionTimeoutMS=2000"), properties));
  }

  Harness(Properties properties) {
    // The measurements of YCSB are one object per JVM; a test looks at what it added.
    Measurements.setProperties(new Properties());
    measuredBefore = exported();
    try {
      report = Files.createTempFile("ycsb-report-", ".json");
      report.toFile().deleteOnExit();
      properties.setProperty("mongodb.report", report.toString());
      db = DBFactory.newDB(MongoDbClient.class.getName(), properties,
          new Tracer.Builder("test").conf(HTraceConfiguration.EMPTY).build());
      db.init();
    } catch (IOException | UnknownDBException | DBException e) {
      throw new IllegalStateException(e);
    }
  }

  static Properties properties(String first, String... more) {
    Properties properties = new Properties();
    for (String pair : concat(first, more)) {
      String[] parts = pair.split("=", 2);
      properties.setProperty(parts[0], parts[1]);
    }
    return properties;
  }

  private static List<String> concat(String first, String... more) {
    List<String> all = new ArrayList<>(List.of(first));
    all.addAll(List.of(more));
    return all;
  }

  /** A record's values in YCSB's form; they can be read once, as YCSB's own can. */
  static Map<String, ByteIterator> values(String... namesAndValues) {
    Map<String, String> strings = new LinkedHashMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      strings.put(namesAndValues[i], namesAndValues[i + 1]);
    }
    return new HashMap<>(StringByteIterator.getByteIteratorMap(strings));
  }

  static Map<String, String> strings(Map<String, ByteIterator> values) {
    return StringByteIterator.getStringMap(values);
  }

  /** Ends the run and returns the report that the binding wrote. */
  Document finish() {
    close();
    try {
      return Document.parse(Files.readString(report));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Operations that YCSB filed under this series since the harness was made. */
  long measured(String series) {
    String key = series + " Operations";
    return (long) (exported().getOrDefault(key, 0.0) - measuredBefore.getOrDefault(key, 0.0));
  }

  /** Times YCSB counted this return code since the harness was made. */
  long returned(String operation, String status) {
    String key = operation + " Return=" + status;
    return (long) (exported().getOrDefault(key, 0.0) - measuredBefore.getOrDefault(key, 0.0));
  }

  private static Map<String, Double> exported() {
    Map<String, Double> values = new HashMap<>();
    try {
      Measurements.getMeasurements().exportMeasurements(new Collector(values));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return values;
  }

  @Override
  public void close() {
    if (!open) {
      return;
    }
    open = false;
    try {
      db.cleanup();
    } catch (DBException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Takes YCSB's results as numbers instead of text. */
  private record Collector(Map<String, Double> values) implements MeasurementsExporter {
    @Override
    public void write(String metric, String measurement, int value) {
      values.put(metric + " " + measurement, (double) value);
    }

    @Override
    public void write(String metric, String measurement, long value) {
      values.put(metric + " " + measurement, (double) value);
    }

    @Override
    public void write(String metric, String measurement, double value) {
      values.put(metric + " " + measurement, value);
    }

    @Override
    public void close() {
      // Nothing is held open.
    }
  }
}
