package site.ycsb.db;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCompressor;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class SettingsTest {
  private static Settings parse(String... pairs) {
    Properties properties = new Properties();
    for (String pair : pairs) {
      String[] parts = pair.split("=", 2);
      properties.setProperty(parts[0], parts[1]);
    }
    return Settings.parse(properties);
  }

  private static String refusal(String... pairs) {
    return assertThrows(StartupException.class, () -> parse(pairs)).getMessage();
  }

  @Test
  void defaultsAreTheDocumentedOnes() {
    Settings settings = parse();
    assertEquals(List.of("localhost:27017"), settings.url().getHosts());
    assertEquals("ycsb", settings.database());
    assertEquals(1, settings.batchSize());
    assertFalse(settings.upsert());
    assertEquals(WriteConcern.W1, settings.writeConcern());
    assertEquals(ReadPreference.primary(), settings.readPreference());
    assertEquals(ReadConcern.DEFAULT, settings.readConcern());
    assertEquals(1, settings.poolSize());
    assertEquals(List.of(), settings.compressors());
    assertFalse(settings.strings());
  }

  @Test
  void propertiesOfYcsbItselfAreNoneOfItsBusiness() {
    assertEquals(1, parse("recordcount=10", "workload=w", "db.batchsize=7").batchSize());
  }

  @ParameterizedTest
  @CsvSource({"acknowledged,1,", "unacknowledged,0,", "journaled,1,true", "replica_acknowledged,2,",
      "majority,majority,"})
  void writeConcernsOfTheDocumentationMeanWhatTheySay(String name, String w, Boolean journal) {
    WriteConcern concern = parse("mongodb.writeConcern=" + name).writeConcern();
    assertEquals(w, String.valueOf(concern.getWObject()));
    assertEquals(journal, concern.getJournal());
  }

  @ParameterizedTest
  @CsvSource({"primary,primary", "primary_preferred,primaryPreferred", "secondary,secondary",
      "secondaryPreferred,secondaryPreferred", "NEAREST,nearest"})
  void readPreferencesAreUnderstoodInBothSpellings(String name, String mongodbName) {
    assertEquals(mongodbName, parse("mongodb.readPreference=" + name).readPreference().getName());
  }

  @ParameterizedTest
  @ValueSource(strings = {"local", "available", "majority", "linearizable"})
  void readConcernsAreUnderstood(String name) {
    assertEquals(name, parse("mongodb.readConcern=" + name).readConcern().getLevel().getValue());
  }

  @Test
  void authoritiesAreReadFromAPemFileAndNeedTls(@TempDir Path folder) throws IOException {
    Path empty = Files.writeString(folder.resolve("ca.pem"), "");
    String named = "mongodb.tlsCAFile=" + empty;
    assertTrue(refusal(named).contains("needs tls=true"));
    Settings settings = parse(named, "mongodb.url=mongodb://h/?tls=true");
    assertTrue(assertThrows(StartupException.class, settings::driver).getMessage().contains("no certificate in it"));
    Files.delete(empty);
    assertTrue(assertThrows(StartupException.class, settings::driver).getMessage().contains("NoSuchFile"));
  }

  @Test
  void compressorsKeepTheirOrder() {
    assertEquals(List.of("zstd", "snappy"), parse("mongodb.compressors=zstd, snappy").compressors().stream()
        .map(MongoCompressor::getName).toList());
    assertEquals(List.of(), parse("mongodb.compressors=none").compressors());
  }

  @Test
  void thePoolHasOneConnectionPerThreadUnlessSaidOtherwise() {
    assertEquals(32, parse("threadcount=32").poolSize());
    assertEquals(8, parse("threadcount=32", "mongodb.maxconnections=8").poolSize());
    assertEquals(5, parse("threadcount=32", "mongodb.url=mongodb://h/?maxPoolSize=5").poolSize());
    assertEquals(8, parse("mongodb.maxconnections=8").driver().getConnectionPoolSettings().getMaxSize());
  }

  @Test
  void theUrlMaySayEverythingAPropertyCan() {
    Settings settings = parse("mongodb.url=mongodb://h/other?w=majority&readPreference=nearest"
        + "&readConcernLevel=majority&compressors=zlib");
    assertEquals("other", settings.database());
    assertEquals(WriteConcern.MAJORITY, settings.writeConcern());
    assertEquals(ReadPreference.nearest(), settings.readPreference());
    assertEquals(ReadConcern.MAJORITY, settings.readConcern());
    assertEquals("zlib", settings.compressors().get(0).getName());
  }

  @Test
  void theSameThingSaidTwiceIsAccepted() {
    assertEquals(WriteConcern.MAJORITY,
        parse("mongodb.url=mongodb://h/?w=majority", "mongodb.writeConcern=majority").writeConcern());
    assertEquals(100, parse("mongodb.batchsize=100", "batchsize=100").batchSize());
  }

  @ParameterizedTest
  @CsvSource({"w=1,mongodb.writeConcern=majority", "readPreference=primary,mongodb.readPreference=nearest",
      "readConcernLevel=local,mongodb.readConcern=majority", "maxPoolSize=5,mongodb.maxconnections=6",
      "compressors=zlib,mongodb.compressors=zstd"})
  void aPropertyThatContradictsTheUrlIsRefused(String option, String property) {
    String message = refusal("mongodb.url=mongodb://h/?" + option, property);
    assertTrue(message.startsWith(property + " contradicts "), message);
  }

  @Test
  void twoDatabasesAreRefused() {
    assertTrue(refusal("mongodb.url=mongodb://h/a", "mongodb.database=b").startsWith("mongodb.database=b contradicts"));
  }

  @Test
  void twoBatchSizesAreRefused() {
    assertEquals(100, parse("batchsize=100").batchSize());
    assertTrue(refusal("mongodb.batchsize=10", "batchsize=20").contains("contradicts batchsize=20"));
  }

  @Test
  void linearizableReadsFromSecondariesAreRefused() {
    assertTrue(refusal("mongodb.readConcern=linearizable", "mongodb.readPreference=secondary").contains("primary"));
  }

  @Test
  void anUnknownPropertyIsRefusedWithTheNearestName() {
    String message = refusal("mongodb.writeconcern=majority");
    assertTrue(message.startsWith("unknown property mongodb.writeconcern; did you mean mongodb.writeConcern?"),
        message);
    assertTrue(refusal("mongodb.batchSizes=2").contains("did you mean mongodb.batchsize?"));
  }

  @Test
  void whatCurrentDriversNoLongerHaveIsRefusedByName() {
    assertTrue(refusal("mongodb.threadsAllowedToBlockForConnectionMultiplier=5").contains("waitQueueTimeoutMS"));
    assertTrue(refusal("mongodb.writeConcern=errors_ignored").contains("unacknowledged"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"mongodb.batchsize=0", "mongodb.batchsize=ten", "mongodb.upsert=yes",
      "mongodb.maxconnections=-1", "mongodb.readPreference=first", "mongodb.readConcern=snapshot",
      "mongodb.writeConcern=3", "mongodb.compressors=lz4", "mongodb.compressors=none,zlib", "mongodb.valuetype=int",
      "threadcount=many"})
  void aValueThatCannotBeIsRefusedWithItsProperty(String pair) {
    String message = refusal(pair);
    assertTrue(message.startsWith(pair.substring(0, pair.indexOf('='))), message);
  }

  @Test
  void aWrongUrlIsRefusedWithoutItsPassword() {
    String message = refusal("mongodb.url=mongodb://user:secret@h:notaport/");
    assertTrue(message.startsWith("mongodb.url=mongodb://***@h:notaport/"), message);
    assertFalse(message.contains("secret"), message);
  }

  @Test
  void threadsJoinALadderRungByRung() {
    StartPlan plan = parse("threadcount=4", "mongodb.startat=1000", "mongodb.rungs=0,1,2,4",
        "mongodb.rungseconds=10").start();
    assertEquals(List.of(11_000L, 21_000L, 31_000L, 31_000L),
        List.of(plan.startOf(0), plan.startOf(1), plan.startOf(2), plan.startOf(3)));
  }

  @Test
  void withoutRungsAllThreadsBeginAtOneTime() {
    StartPlan plan = parse("threadcount=4", "mongodb.startat=1000").start();
    assertEquals(List.of(1000L, 1000L), List.of(plan.startOf(0), plan.startOf(3)));
  }

  @Test
  void ladderPropertiesThatCannotBeAreRefused() {
    assertTrue(refusal("mongodb.rungs=1,2").contains("go together"));
    assertTrue(refusal("threadcount=4", "mongodb.startat=1", "mongodb.rungs=1,2", "mongodb.rungseconds=1")
        .contains("must end with threadcount=4"));
    assertTrue(refusal("threadcount=1", "mongodb.startat=1", "mongodb.rungs=2,1", "mongodb.rungseconds=1")
        .contains("never leave"));
    assertTrue(refusal("mongodb.startat=soon").contains("mongodb.startat=soon: a whole number"));
  }
}
