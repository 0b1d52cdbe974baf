"""The engine `ycsb`: YCSB's client, on the binding of clients/ycsb-mongodb, one JVM a client.

properties.py makes the properties of each client, clients.py starts and stops them, logs.py reads their logs, cpu.py
says whether something other than the servers was the limit, results.py makes results, also of several client hosts.
"""

from microshard.workloads.ycsb.engine import YcsbEngine

ENGINE = YcsbEngine
