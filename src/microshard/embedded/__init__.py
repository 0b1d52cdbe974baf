"""MongoDB from Python packages alone: a wheel's mongod, and a mongos made of the router code inside it."""
