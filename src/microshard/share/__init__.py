"""A run as one file, for others: `bundle` writes it, `redact` takes out what is private, `unpack` reads it."""
