// Everything an application does, through Node's driver: prints the answers as one line of canonical EJSON.
// node works.mjs CONNECTION_STRING; the collection works.docs, sharded by k where there are shards, is there and empty.
import mongodb from "mongodb";

const { BSON, Binary, Decimal128, GridFSBucket, Long, MongoClient, ObjectId } = mongodb;
const client = new MongoClient(process.argv[2], { retryWrites: false, compressors: ["zlib"] });
const db = client.db("works");
const docs = db.collection("docs");
const answers = {};

async function answer(name, work) {
  try {
    answers[name] = await work();
  } catch (error) {
    answers[name] = { error: error.code ?? error.name };
  }
}

const byId = { sort: { _id: 1 } };
const range = (n) => [...Array(n).keys()];
await answer("insertMany", async () => {
  const made = range(300).map((n) => ({ _id: n, k: n, even: n % 2 === 0, arr: [n % 5, n % 3], s: `s${n % 7}`, at: [n, 0] }));
  return (await docs.insertMany(made)).insertedCount;
});
await answer("duplicate", () => docs.insertOne({ _id: 7, k: 7 }));
await answer("types", async () => {
  const one = { _id: 1000, k: 1000, d: Decimal128.fromString("1.10"), l: Long.fromString("9007199254740993"),
    b: new Binary(Buffer.from("x"), 4), o: new ObjectId("5f0000000000000000000000"), t: new Date(0), r: /a/i, n: null };
  await docs.insertOne(one);
  return docs.findOne({ k: 1000 }, { promoteValues: false });
});
await answer("find", () => docs.find({ k: { $gt: 20 } }, { batchSize: 7, projection: { k: 1 } }).sort({ k: -1 }).skip(3).limit(40).toArray());
await answer("find all", async () => (await docs.find({}, { batchSize: 10 }).toArray()).length);
await answer("collation", () => docs.find({ s: "S1" }, { ...byId, collation: { locale: "en", strength: 2 } }).map((d) => d._id).toArray());
await answer("$where", () => docs.find({ $where: "this.k < 3" }, byId).map((d) => d._id).toArray());
await answer("updateOne", async () => (await docs.updateOne({ k: 5 }, { $set: { a: 1 } })).modifiedCount);
await answer("updateMany", async () => (await docs.updateMany({ even: true }, { $inc: { c: 2 } })).modifiedCount);
await answer("pipeline update", async () => (await docs.updateMany({ k: { $lt: 9 } }, [{ $set: { twice: { $add: ["$k", "$k"] } } }])).modifiedCount);
await answer("upsert", async () => (await docs.updateOne({ _id: 2000, k: 2000 }, { $set: { a: 1 } }, { upsert: true })).upsertedId);
await answer("replaceOne", async () => (await docs.replaceOne({ k: 6 }, { k: 6, new: true })).modifiedCount);
await answer("deleteOne", async () => (await docs.deleteOne({ k: 299 })).deletedCount);
await answer("deleteMany", async () => (await docs.deleteMany({ k: { $gte: 290, $lt: 299 } })).deletedCount);
for (const ordered of [true, false]) {
  await answer(`bulk ordered ${ordered}`, async () => {
    const base = ordered ? 3000 : 4000;
    try {
      await docs.bulkWrite([{ insertOne: { document: { _id: base, k: base } } }, { insertOne: { document: { _id: 8, k: 8 } } },
        { updateOne: { filter: { k: base }, update: { $set: { a: 1 } } } }, { deleteOne: { filter: { k: 281 + ordered } } }], { ordered });
    } catch (error) {
      return [error.code, error.result.insertedCount, error.result.modifiedCount, error.result.deletedCount];
    }
  });
}
await answer("findOneAndUpdate", () => docs.findOneAndUpdate({ k: 4 }, { $inc: { f: 1 } }, { returnDocument: "after" }));
await answer("findOneAndReplace", () => docs.findOneAndReplace({ k: 4 }, { k: 4, g: 1 }));
await answer("findOneAndDelete", () => docs.findOneAndDelete({ k: 3 }));
await answer("countDocuments", () => docs.countDocuments({ even: true }));
await answer("estimated", () => docs.estimatedDocumentCount());
await answer("count $where", async () => (await db.command({ count: "docs", query: { $where: "this.k < 20" }, skip: 3 })).n);
for (const key of ["s", "arr", "arr.0", "missing"]) await answer(`distinct ${key}`, () => docs.distinct(key, { even: true }));
const pipelines = {
  group: [{ $group: { _id: "$s", n: { $sum: 1 }, mean: { $avg: "$k" } } }, { $sort: { _id: 1 } }],
  lookup: [{ $match: { k: { $lt: 20 } } }, { $lookup: { from: "docs", localField: "arr", foreignField: "_id", as: "x" } },
    { $project: { n: { $size: "$x" } } }, { $sort: { _id: 1 } }],
  graphLookup: [{ $match: { k: 9 } }, { $graphLookup: { from: "docs", startWith: "$arr", connectFromField: "arr", connectToField: "_id", as: "x" } },
    { $project: { n: { $size: "$x" } } }],
  facet: [{ $facet: { a: [{ $count: "n" }], b: [{ $group: { _id: "$even", k: { $max: "$k" } } }, { $sort: { _id: 1 } }] } }],
  unionWith: [{ $unionWith: "docs" }, { $count: "n" }],
  window: [{ $match: { k: { $lt: 30 } } }, { $setWindowFields: { sortBy: { k: 1 }, output: { sum: { $sum: "$k", window: { documents: [-1, 0] } } } } },
    { $project: { sum: 1 } }, { $sort: { _id: 1 } }],
  out: [{ $match: { even: true } }, { $out: "even" }],
  merge: [{ $set: { merged: true } }, { $merge: { into: "even", whenMatched: "merge" } }],
  error: [{ $group: { _id: { $divide: [1, 0] } } }],
};
for (const [name, pipeline] of Object.entries(pipelines)) await answer(name, () => docs.aggregate(pipeline, { allowDiskUse: true }).toArray());
await answer("written", () => db.collection("even").find({}, { ...byId, projection: { merged: 1 } }).toArray());
await answer("createIndex", () => docs.createIndex({ s: 1, k: -1 }, { name: "both" }));
await answer("hint", () => docs.find({ s: "s1" }, { ...byId, hint: "both" }).map((d) => d._id).toArray());
await answer("bad hint", () => docs.find({}, { hint: "none" }).toArray());
await answer("indexes", async () => (await docs.indexes()).map((i) => i.name).filter((n) => n !== "k_hashed").sort());
await answer("dropIndex", () => docs.dropIndex("both").then(() => true));
await answer("2d", () => docs.createIndex({ at: "2d" }, { min: -1, max: 1000 }));
await answer("$near", () => docs.find({ at: { $near: [10, 0], $maxDistance: 2.5 } }).map((d) => d._id).toArray().then((found) => found.sort((a, b) => a - b)));
await answer("text", async () => {
  await docs.createIndex({ s: "text" });
  return docs.find({ $text: { $search: "s3" } }, byId).map((d) => d._id).toArray();
});
await answer("view", async () => {
  await db.createCollection("view", { viewOn: "docs", pipeline: [{ $match: { k: { $lt: 9 } } }] });
  const view = db.collection("view");
  return [await view.countDocuments(), (await view.distinct("k")).sort(), (await view.find().toArray()).length];
});
await answer("validator", async () => {
  const strict = await db.createCollection("strict", { validator: { a: { $type: "int" } } });
  await strict.insertOne({ a: 1 });
  await strict.insertOne({ a: "x" });
});
await answer("tailable", async () => {
  const log = await db.createCollection("log", { capped: true, size: 10000 });
  await log.insertOne({ _id: 0 });
  const cursor = log.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 500 });
  const first = await cursor.next();
  await log.insertOne({ _id: 1 });
  const second = await cursor.next();
  await cursor.close();
  return [first, second];
});
await answer("time series", async () => {
  const series = await db.createCollection("series", { timeseries: { timeField: "t", metaField: "m" } });
  await series.insertMany(range(20).map((n) => ({ t: new Date(n * 1000), m: n % 4, v: n })));
  return [await series.countDocuments({ m: 1 }), (await series.distinct("m")).sort(), (await series.deleteMany({ m: 2 })).deletedCount];
});
await answer("gridfs", async () => {
  const bucket = new GridFSBucket(db, { chunkSizeBytes: 1000 });
  const upload = bucket.openUploadStream("file");
  await new Promise((resolve, reject) => upload.on("finish", resolve).on("error", reject).end(Buffer.alloc(5500, "y")));
  let size = 0;
  for await (const chunk of bucket.openDownloadStreamByName("file")) size += chunk.length;
  return size;
});
await answer("mapReduce", async () => {
  const functions = { map: "function() { emit(this.even, 1) }", reduce: "function(k, v) { return Array.sum(v) }" };
  const reply = await db.command({ mapReduce: "docs", ...functions, query: { k: { $lt: 200 }, even: true }, out: { inline: 1 } });
  return reply.results;
});
await answer("rename", async () => (await db.collection("even").rename("odd")).collectionName);
await answer("collections", async () => (await db.listCollections().toArray()).map((c) => c.name).filter((n) => !n.startsWith("system.")).sort());
await answer("unknown command", () => db.command({ noSuchCommand: 1 }));
await answer("unknown field", () => db.command({ count: "docs", nonsense: 1 }));
await answer("maxTimeMS", () => docs.find({ $where: "sleep(50) || true" }, { maxTimeMS: 30 }).toArray());
await answer("majority", () => docs.insertOne({ _id: 5000, k: 5000 }, { writeConcern: { w: "majority" } }).then((r) => r.insertedId));
await answer("read concern", () => docs.countDocuments({ k: 5000 }, { readConcern: { level: "majority" } }));
await answer("end", () => docs.find({}, byId).toArray());
const strict = new MongoClient(process.argv[2], { retryWrites: false, serverApi: { version: "1", strict: true, deprecationErrors: true } });
const strictDocs = strict.db("works").collection("docs");
await answer("strict find", async () => (await strictDocs.find({}, { batchSize: 20 }).toArray()).length);
await answer("strict distinct", () => strictDocs.distinct("k"));
console.log(BSON.EJSON.stringify(answers, { relaxed: false }));
await Promise.all([client.close(), strict.close()]);
