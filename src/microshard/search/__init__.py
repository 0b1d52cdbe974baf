"""Searching instead of measuring a whole grid: which shard count to measure next, and what is known so far."""
