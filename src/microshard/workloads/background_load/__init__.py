"""A load that runs beside a measured event: its keys, its documents, its workers and what they saw."""
