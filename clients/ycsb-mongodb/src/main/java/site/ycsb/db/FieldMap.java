package site.ycsb.db;

import java.util.HashMap;
import site.ycsb.ByteIterator;

/** The fields of one document as YCSB wants them, without {@code _id}; a class of its own so as to have a codec. */
final class FieldMap extends HashMap<String, ByteIterator> {
  private static final long serialVersionUID = 1L;
}
