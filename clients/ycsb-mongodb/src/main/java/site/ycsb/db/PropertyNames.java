package site.ycsb.db;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

/** The property names this binding knows, and what it says about every other name under its prefix. */
final class PropertyNames {
  static final String PREFIX = "mongodb.";
  static final String URL = "mongodb.url";
  static final String DATABASE = "mongodb.database";
  static final String BATCH_SIZE = "mongodb.batchsize";
  /** The name under which the binding of the YCSB distribution reads the batch size, unlike its documentation. */
  static final String BATCH_SIZE_ALIAS = "batchsize";
  static final String UPSERT = "mongodb.upsert";
  static final String WRITE_CONCERN = "mongodb.writeConcern";
  static final String READ_PREFERENCE = "mongodb.readPreference";
  static final String READ_CONCERN = "mongodb.readConcern";
  static final String MAX_CONNECTIONS = "mongodb.maxconnections";
  static final String COMPRESSORS = "mongodb.compressors";
  static final String TLS_CA_FILE = "mongodb.tlsCAFile";
  static final String VALUE_TYPE = "mongodb.valuetype";
  static final String REPORT = "mongodb.report";
  static final String START_AT = "mongodb.startat";
  static final String RUNGS = "mongodb.rungs";
  static final String RUNG_SECONDS = "mongodb.rungseconds";

  private static final List<String> KNOWN = List.of(URL, DATABASE, BATCH_SIZE, UPSERT, WRITE_CONCERN, READ_PREFERENCE,
      READ_CONCERN, MAX_CONNECTIONS, COMPRESSORS, TLS_CA_FILE, VALUE_TYPE, REPORT, START_AT, RUNGS, RUNG_SECONDS);

  private static final Map<String, String> RETIRED = Map.of(
      "mongodb.threadsAllowedToBlockForConnectionMultiplier",
      "current drivers have no limit on waiting threads; leave it out (waitQueueTimeoutMS in " + URL
          + " limits the time a thread waits)");

  private PropertyNames() {
  }

  /**
   * Refuses every property under the prefix that this binding does not read.
   *
   * @throws StartupException naming the property and the nearest one that exists
   */
  static void refuseUnknown(Properties properties) {
    // Sorted, so that of several wrong names always the same one is reported first.
    for (String name : new TreeSet<>(properties.stringPropertyNames())) {
      if (!name.startsWith(PREFIX) || KNOWN.contains(name)) {
        continue;
      }
      String retired = RETIRED.get(name);
      if (retired != null) {
        throw new StartupException(name + ": " + retired);
      }
      throw new StartupException("unknown property " + name + "; did you mean " + nearest(name, KNOWN) + "? Known: "
          + String.join(", ", KNOWN));
    }
  }

  /** Returns the candidate with the smallest edit distance to {@code word}, letter case not counted. */
  static String nearest(String word, List<String> candidates) {
    String best = candidates.get(0);
    int bestDistance = Integer.MAX_VALUE;
    for (String candidate : candidates) {
      int distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
      if (distance < bestDistance) {
        bestDistance = distance;
        best = candidate;
      }
    }
    return best;
  }

  private static int editDistance(String a, String b) {
    int[] previous = new int[b.length() + 1];
    for (int j = 0; j <= b.length(); j++) {
      previous[j] = j;
    }
    for (int i = 1; i <= a.length(); i++) {
      int[] current = new int[b.length() + 1];
      current[0] = i;
      for (int j = 1; j <= b.length(); j++) {
        int substitution = previous[j - 1] + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
        current[j] = Math.min(substitution, Math.min(previous[j], current[j - 1]) + 1);
      }
      previous = current;
    }
    return previous[b.length()];
  }
}
