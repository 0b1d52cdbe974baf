package site.ycsb.db;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCompressor;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.function.Function;
import org.bson.codecs.configuration.CodecRegistries;

/**
 * What a run's properties say, checked and with every default explicit.
 *
 * @param url where to connect
 * @param database the database that holds YCSB's table
 * @param batchSize documents per insert command; 1 sends every insert by itself
 * @param upsert whether an insert replaces a document that has the key already
 * @param writeConcern sent with every write
 * @param readPreference used by reads and scans
 * @param readConcern used by reads and scans; {@link ReadConcern#DEFAULT} sends none
 * @param poolSize connections per server, at most
 * @param compressors offered to the server, in this order; empty for none
 * @param tlsCaFile PEM file of the certificate authorities that are trusted; empty for those of the JVM
 * @param strings whether values are stored as strings instead of binary
 * @param reportPath file for the report; empty for none
 * @param start when each thread begins
 */
record Settings(ConnectionString url, String database, int batchSize, boolean upsert, WriteConcern writeConcern,
    ReadPreference readPreference, ReadConcern readConcern, int poolSize, List<MongoCompressor> compressors,
    String tlsCaFile, boolean strings, String reportPath, StartPlan start) {

  private static final String DEFAULT_URL = "mongodb://localhost:27017/ycsb";
  private static final String DEFAULT_DATABASE = "ycsb";

  /**
   * The driver's own ACKNOWLEDGED sends no write concern, and the server then takes its default: w:1 before MongoDB
   * 5.0, majority since. YCSB's documented meaning is w:1, and an experiment must not change with the server's version.
   */
  private static final Map<String, WriteConcern> WRITE_CONCERNS = ordered(
      Map.entry("acknowledged", WriteConcern.W1),
      Map.entry("unacknowledged", WriteConcern.UNACKNOWLEDGED),
      Map.entry("journaled", WriteConcern.W1.withJournal(true)),
      Map.entry("replica_acknowledged", WriteConcern.W2),
      Map.entry("majority", WriteConcern.MAJORITY));

  private static final Map<String, ReadPreference> READ_PREFERENCES = ordered(
      Map.entry("primary", ReadPreference.primary()),
      Map.entry("primary_preferred", ReadPreference.primaryPreferred()),
      Map.entry("secondary", ReadPreference.secondary()),
      Map.entry("secondary_preferred", ReadPreference.secondaryPreferred()),
      Map.entry("nearest", ReadPreference.nearest()));

  private static final Map<String, ReadConcern> READ_CONCERNS = ordered(
      Map.entry("default", ReadConcern.DEFAULT),
      Map.entry("local", ReadConcern.LOCAL),
      Map.entry("available", ReadConcern.AVAILABLE),
      Map.entry("majority", ReadConcern.MAJORITY),
      Map.entry("linearizable", ReadConcern.LINEARIZABLE));

  private static final Map<String, MongoCompressor> COMPRESSORS = ordered(
      Map.entry("snappy", MongoCompressor.createSnappyCompressor()),
      Map.entry("zlib", MongoCompressor.createZlibCompressor()),
      Map.entry("zstd", MongoCompressor.createZstdCompressor()));

  private static final Map<String, Boolean> BOOLEANS = ordered(Map.entry("false", false), Map.entry("true", true));

  private static final Map<String, Boolean> VALUE_TYPES = ordered(Map.entry("binary", false),
      Map.entry("string", true));

  /**
   * Reads and checks the properties of a run.
   *
   * @throws StartupException when a property is unknown, has a value it cannot have, or contradicts another one
   */
  static Settings parse(Properties properties) {
    PropertyNames.refuseUnknown(properties);
    ConnectionString url = parseUrl(properties.getProperty(PropertyNames.URL, DEFAULT_URL));
    WriteConcern writeConcern = agreed(properties, PropertyNames.WRITE_CONCERN,
        name -> oneOf(PropertyNames.WRITE_CONCERN, name, WRITE_CONCERNS), "w or journal", url.getWriteConcern(),
        WriteConcern.W1);
    ReadPreference readPreference = agreed(properties, PropertyNames.READ_PREFERENCE,
        name -> oneOf(PropertyNames.READ_PREFERENCE, name, READ_PREFERENCES), "readPreference",
        url.getReadPreference(), ReadPreference.primary());
    ReadConcern readConcern = agreed(properties, PropertyNames.READ_CONCERN,
        name -> oneOf(PropertyNames.READ_CONCERN, name, READ_CONCERNS), "readConcernLevel", url.getReadConcern(),
        ReadConcern.DEFAULT);
    if (readConcern.equals(ReadConcern.LINEARIZABLE) && !readPreference.equals(ReadPreference.primary())) {
      throw new StartupException("read concern linearizable reads from the primary only, but the read preference is "
          + readPreference.getName());
    }
    List<MongoCompressor> urlCompressors = url.getCompressorList().isEmpty() ? null : url.getCompressorList();
    return new Settings(
        url,
        agreed(properties, PropertyNames.DATABASE, Function.identity(), "the database in its path", url.getDatabase(),
            DEFAULT_DATABASE),
        batchSize(properties),
        oneOf(PropertyNames.UPSERT, properties.getProperty(PropertyNames.UPSERT, "false"), BOOLEANS),
        writeConcern,
        readPreference,
        readConcern,
        agreed(properties, PropertyNames.MAX_CONNECTIONS, text -> positive(PropertyNames.MAX_CONNECTIONS, text),
            "maxPoolSize", url.getMaxConnectionPoolSize(),
            positive("threadcount", properties.getProperty("threadcount", "1"))),
        agreed(properties, PropertyNames.COMPRESSORS, Settings::compressors, "compressors", urlCompressors, List.of()),
        tlsCaFile(properties, url),
        oneOf(PropertyNames.VALUE_TYPE, properties.getProperty(PropertyNames.VALUE_TYPE, "binary"), VALUE_TYPES),
        properties.getProperty(PropertyNames.REPORT, ""),
        StartPlan.parse(properties));
  }

  /** The driver's settings for this run: one client, shared by all threads of the JVM. */
  MongoClientSettings driver() {
    MongoClientSettings.Builder builder = MongoClientSettings.builder()
        .applyConnectionString(url)
        .applyToConnectionPoolSettings(pool -> pool.maxSize(poolSize))
        .writeConcern(writeConcern)
        .readPreference(readPreference)
        .readConcern(readConcern)
        .compressorList(compressors)
        .codecRegistry(CodecRegistries.fromRegistries(CodecRegistries.fromCodecs(new FieldMapCodec()),
            MongoClientSettings.getDefaultCodecRegistry()));
    if (url.getApplicationName() == null) {
      // Servers log it with every connection: the load can be distinguished from monitoring tools.
      builder.applicationName("ycsb-mongodb");
    }
    if (!tlsCaFile.isEmpty()) {
      builder.applyToSslSettings(ssl -> ssl.context(Trust.in(tlsCaFile)));
    }
    return builder.build();
  }

  private static ConnectionString parseUrl(String text) {
    try {
      return new ConnectionString(text);
    } catch (IllegalArgumentException e) {
      throw new StartupException(PropertyNames.URL + "=" + withoutPassword(text) + ": "
          + withoutPassword(e.getMessage()));
    }
  }

  /** Messages end in logs and reports, where a password has no business. */
  static String withoutPassword(String text) {
    return String.valueOf(text).replaceAll("://[^@/]*@", "://***@");
  }

  private static String tlsCaFile(Properties properties, ConnectionString url) {
    String path = properties.getProperty(PropertyNames.TLS_CA_FILE, "");
    if (!path.isEmpty() && !Boolean.TRUE.equals(url.getSslEnabled())) {
      throw new StartupException(PropertyNames.TLS_CA_FILE + "=" + path + " needs tls=true in " + PropertyNames.URL);
    }
    return path;
  }

  private static int batchSize(Properties properties) {
    String documented = properties.getProperty(PropertyNames.BATCH_SIZE);
    String alias = properties.getProperty(PropertyNames.BATCH_SIZE_ALIAS);
    if (documented != null && alias != null && !documented.equals(alias)) {
      throw new StartupException(PropertyNames.BATCH_SIZE + "=" + documented + " contradicts "
          + PropertyNames.BATCH_SIZE_ALIAS + "=" + alias + "; give one of them");
    }
    String text = Objects.requireNonNullElse(documented, Objects.requireNonNullElse(alias, "1"));
    return positive(documented != null ? PropertyNames.BATCH_SIZE : PropertyNames.BATCH_SIZE_ALIAS, text);
  }

  private static List<MongoCompressor> compressors(String text) {
    if (text.trim().equals("none")) {
      return List.of();
    }
    List<MongoCompressor> compressors = new ArrayList<>();
    for (String name : text.split(",", -1)) {
      compressors.add(oneOf(PropertyNames.COMPRESSORS, name, COMPRESSORS));
    }
    return List.copyOf(compressors);
  }

  /** Takes a setting from its property or from the URL; both may say it only when they say the same. */
  private static <T> T agreed(Properties properties, String name, Function<String, T> parser, String urlOption,
      T fromUrl, T fallback) {
    String text = properties.getProperty(name);
    if (text == null) {
      return Objects.requireNonNullElse(fromUrl, fallback);
    }
    T fromProperty = parser.apply(text);
    if (fromUrl != null && !fromUrl.equals(fromProperty)) {
      throw new StartupException(name + "=" + text + " contradicts " + urlOption + " of " + PropertyNames.URL
          + "; give one of them");
    }
    return fromProperty;
  }

  private static int positive(String name, String text) {
    try {
      int value = Integer.parseInt(text.trim());
      if (value > 0) {
        return value;
      }
    } catch (NumberFormatException e) {
      // Falls through to the message that suits a word and a negative number alike.
    }
    throw new StartupException(name + "=" + text + ": a whole number of at least 1 is needed");
  }

  private static <T> T oneOf(String name, String text, Map<String, T> allowed) {
    String wanted = canonical(text);
    for (Map.Entry<String, T> entry : allowed.entrySet()) {
      if (canonical(entry.getKey()).equals(wanted)) {
        return entry.getValue();
      }
    }
    if (wanted.equals("errorsignored")) {
      throw new StartupException(name + "=" + text
          + ": current drivers do not have it; the nearest is unacknowledged, which still reports network errors");
    }
    throw new StartupException(name + "=" + text + ": not one of " + String.join(", ", allowed.keySet()));
  }

  /** YCSB writes primary_preferred, MongoDB primaryPreferred: both are understood. */
  private static String canonical(String text) {
    return text.trim().toLowerCase().replace("_", "");
  }

  /** A map that keeps its order, so that messages list the values as the documentation does. */
  @SafeVarargs
  private static <T> Map<String, T> ordered(Map.Entry<String, T>... entries) {
    Map<String, T> map = new LinkedHashMap<>();
    for (Map.Entry<String, T> entry : entries) {
      map.put(entry.getKey(), entry.getValue());
    }
    return map;
  }
}
