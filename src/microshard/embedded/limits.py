"""Commands of mongos that the embedded one cannot do: each answers the server's own code and a sentence."""

from microshard.embedded.errors import ILLEGAL_OPERATION, NOT_SUPPORTED_IN_TRANSACTION
from microshard.embedded.registry import refuse

refuse("it has no sessions.", "startSession", "endSessions", "refreshSessions", "killSessions", "killAllSessions",
       "killAllSessionsByPattern", "reapLogicalSessionCacheNow", "refreshLogicalSessionCacheNow",
       code=ILLEGAL_OPERATION)  # fmt: skip
refuse("it has no transactions.", "commitTransaction", "abortTransaction", "coordinateCommitTransaction",
       "prepareTransaction", code=NOT_SUPPORTED_IN_TRANSACTION)  # fmt: skip
refuse("clients log in with SCRAM only.", "authenticate", "getnonce")
refuse("it lives as long as its certificate.", "rotateCertificates")
refuse("the router mongod has no cluster form of it; an aggregation with $group, $out or $merge does the same.",
       "mapReduce", "mapreduce")  # fmt: skip
refuse("a mongos is no replica set member; ask a shard.", "replSetGetStatus", "replSetGetConfig", "replSetInitiate",
       "replSetReconfig", "replSetStepDown", "replSetFreeze", "replSetMaintenance", "replSetSyncFrom")  # fmt: skip
refuse("a mongos holds no data; ask a shard.", "top", "compact", "reIndex", "dbHash", "profile", "lockInfo",
       "cleanupOrphaned", "applyOps", "oplogSize", "repairDatabase", "cloneCollectionAsCapped",
       "setFreeMonitoring", "getFreeMonitoringStatus", "getDiagnosticData")  # fmt: skip
refuse("resharding and queryable encryption need its transactions.", "reshardCollection", "commitReshardCollection",
       "abortReshardCollection", "cleanupReshardCollection", "compactStructuredEncryptionData")  # fmt: skip
