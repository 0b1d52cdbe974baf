package site.ycsb.db;

import java.nio.charset.StandardCharsets;
import org.bson.BsonReader;
import org.bson.BsonType;
import org.bson.BsonWriter;
import org.bson.codecs.Codec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;
import site.ycsb.ByteArrayByteIterator;

/**
 * Decodes a document straight into YCSB's map: no intermediate document, no copy of a value.
 *
 * <p>{@code _id} is left out because YCSB's data integrity check takes every entry for a field of the record. Values of
 * other types than the two this binding writes are not YCSB's and are left out too.
 */
final class FieldMapCodec implements Codec<FieldMap> {
  @Override
  public FieldMap decode(BsonReader reader, DecoderContext context) {
    FieldMap fields = new FieldMap();
    reader.readStartDocument();
    for (BsonType type = reader.readBsonType(); type != BsonType.END_OF_DOCUMENT; type = reader.readBsonType()) {
      String name = reader.readName();
      if (name.equals("_id")) {
        reader.skipValue();
      } else if (type == BsonType.BINARY) {
        fields.put(name, new ByteArrayByteIterator(reader.readBinaryData().getData()));
      } else if (type == BsonType.STRING) {
        // YCSB's own StringByteIterator takes one byte per char, which is wrong beyond ASCII.
        fields.put(name, new ByteArrayByteIterator(reader.readString().getBytes(StandardCharsets.UTF_8)));
      } else {
        reader.skipValue();
      }
    }
    reader.readEndDocument();
    return fields;
  }

  @Override
  public void encode(BsonWriter writer, FieldMap value, EncoderContext context) {
    throw new UnsupportedOperationException("documents are written as BsonDocument, so that they can be sent again");
  }

  @Override
  public Class<FieldMap> getEncoderClass() {
    return FieldMap.class;
  }
}
