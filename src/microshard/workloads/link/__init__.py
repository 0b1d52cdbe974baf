"""A delayed and narrow link, emulated by a relay between a client and its server."""
