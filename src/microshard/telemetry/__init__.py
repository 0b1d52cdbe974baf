"""What machines and servers did during a measurement: samplers that write JSON lines, and their summary.

`host.py` runs alone on a database host (Python's standard library only), `server.py` where pymongo is, `summary.py`
reads both. docs/contracts.md has the records.
"""
