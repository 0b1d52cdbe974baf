"""The engine `ycsb`: YCSB's own client, on the binding of clients/ycsb-mongodb, one JVM a client.

properties.py makes YCSB's properties of it, engine.py runs the clients,
logs.py reads what they measured, ladder.py finds the knee, evidence.py says what the CPU did, merge.py puts what
several client hosts did together.
"""

from microshard.workloads.ycsb.engine import YcsbEngine

ENGINE = YcsbEngine
