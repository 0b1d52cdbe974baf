"""Side-by-side benchmarks: `make bench` runs them all and writes docs/benchmarks.md and its picture.

Every module named in `bench.catalog` has `measure(quick) -> Findings` and runs by itself as well:
`python -m bench.NAME [--quick] [--json FILE]`.
"""
