// What an application does, through Go's driver: prints the answers as one line of JSON.
// works CONNECTION_STRING; the collection works.docs, sharded by k where there are shards, is there and empty.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var (
	ctx     = context.Background()
	answers = map[string]any{}
)

func answer(name string, work func() (any, error)) {
	value, err := work()
	var failed mongo.ServerError
	if errors.As(err, &failed) {
		value = fmt.Sprint("error ", failed.ErrorCodes())
	} else if err != nil {
		value = fmt.Sprintf("error %T", err)
	}
	answers[name] = value
}

func all(cursor *mongo.Cursor, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	found := []bson.M{}
	err = cursor.All(ctx, &found)
	return found, err
}

func connect(more *options.ClientOptions) *mongo.Client {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Args[1]).SetRetryWrites(false), more)
	if err != nil {
		panic(err)
	}
	return client
}

func main() {
	client := connect(options.Client().SetCompressors([]string{"zlib"}))
	db := client.Database("works")
	docs := db.Collection("docs")
	sorted := func() *options.FindOptionsBuilder { return options.Find().SetSort(bson.M{"_id": 1}).SetBatchSize(7) }
	answer("insertMany", func() (any, error) {
		made := []any{}
		for n := range 300 {
			made = append(made, bson.M{"_id": n, "k": n, "even": n%2 == 0, "arr": bson.A{n % 5, n % 3}, "s": fmt.Sprint(n % 7)})
		}
		result, err := docs.InsertMany(ctx, made)
		return len(result.InsertedIDs), err
	})
	answer("duplicate", func() (any, error) { return docs.InsertOne(ctx, bson.M{"_id": 7, "k": 7}) })
	answer("find", func() (any, error) { return all(docs.Find(ctx, bson.M{"k": bson.M{"$gt": 20}}, sorted())) })
	answer("$where", func() (any, error) { return all(docs.Find(ctx, bson.M{"$where": "this.k < 3"}, sorted())) })
	answer("updateOne", func() (any, error) { return docs.UpdateOne(ctx, bson.M{"k": 5}, bson.M{"$set": bson.M{"a": 1}}) })
	answer("updateMany", func() (any, error) { return docs.UpdateMany(ctx, bson.M{"even": true}, bson.M{"$inc": bson.M{"c": 2}}) })
	answer("upsert", func() (any, error) {
		return docs.UpdateOne(ctx, bson.M{"_id": 900, "k": 900}, bson.M{"$set": bson.M{"a": 1}}, options.UpdateOne().SetUpsert(true))
	})
	answer("deleteMany", func() (any, error) { return docs.DeleteMany(ctx, bson.M{"k": bson.M{"$gte": 290, "$lt": 300}}) })
	answer("bulk", func() (any, error) {
		return docs.BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": 3000, "k": 3000}),
			mongo.NewUpdateOneModel().SetFilter(bson.M{"k": 3000}).SetUpdate(bson.M{"$set": bson.M{"a": 1}}),
			mongo.NewDeleteOneModel().SetFilter(bson.M{"k": 281}),
		})
	})
	answer("findOneAndUpdate", func() (any, error) {
		var found bson.M
		err := docs.FindOneAndUpdate(ctx, bson.M{"k": 4}, bson.M{"$inc": bson.M{"f": 1}}).Decode(&found)
		return found, err
	})
	answer("countDocuments", func() (any, error) { return docs.CountDocuments(ctx, bson.M{"even": true}) })
	answer("estimated", func() (any, error) { return docs.EstimatedDocumentCount(ctx) })
	for _, key := range []string{"s", "arr", "arr.0", "missing"} {
		answer("distinct "+key, func() (any, error) {
			values := []any{}
			err := docs.Distinct(ctx, key, bson.M{"even": true}).Decode(&values)
			return values, err
		})
	}
	for name, pipeline := range map[string]bson.A{
		"group": {bson.M{"$group": bson.M{"_id": "$s", "n": bson.M{"$sum": 1}}}, bson.M{"$sort": bson.M{"_id": 1}}},
		"lookup": {
			bson.M{"$match": bson.M{"k": bson.M{"$lt": 20}}},
			bson.M{"$lookup": bson.M{"from": "docs", "localField": "arr", "foreignField": "_id", "as": "x"}},
			bson.M{"$project": bson.M{"n": bson.M{"$size": "$x"}}}, bson.M{"$sort": bson.M{"_id": 1}},
		},
		"error": {bson.M{"$group": bson.M{"_id": bson.M{"$divide": bson.A{1, 0}}}}},
	} {
		answer(name, func() (any, error) { return all(docs.Aggregate(ctx, pipeline)) })
	}
	answer("createIndex", func() (any, error) { return docs.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "s", Value: 1}}}) })
	answer("bad hint", func() (any, error) { return all(docs.Find(ctx, bson.M{}, sorted().SetHint("none"))) })
	answer("tailable", func() (any, error) {
		if err := db.CreateCollection(ctx, "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(10000)); err != nil {
			return nil, err
		}
		log := db.Collection("log")
		log.InsertOne(ctx, bson.M{"_id": 0})
		cursor, err := log.Find(ctx, bson.M{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(500*time.Millisecond))
		if err != nil {
			return nil, err
		}
		defer cursor.Close(ctx)
		found := []string{}
		for n := range 2 {
			if cursor.Next(ctx) {
				found = append(found, cursor.Current.String())
			}
			log.InsertOne(ctx, bson.M{"_id": n + 1})
		}
		return found, cursor.Err()
	})
	answer("unknown command", func() (any, error) { return nil, db.RunCommand(ctx, bson.M{"noSuchCommand": 1}).Err() })
	answer("end", func() (any, error) { return all(docs.Find(ctx, bson.M{}, sorted())) })
	api := options.ServerAPI(options.ServerAPIVersion1).SetStrict(true).SetDeprecationErrors(true)
	strict := connect(options.Client().SetServerAPIOptions(api)).Database("works").Collection("docs")
	answer("strict find", func() (any, error) { return all(strict.Find(ctx, bson.M{}, sorted())) })
	answer("strict distinct", func() (any, error) { return nil, strict.Distinct(ctx, "k", bson.M{}).Err() })
	text, err := json.Marshal(answers)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
