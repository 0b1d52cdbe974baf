"""Which benchmarks there are, in the order in which they are run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """A module of this package, and the rows of the table it measures."""

    module: str
    rows: tuple[int, ...]
    seconds: int  # most it may take; a quiet machine of 2 cores needs less than half
    quick_seconds: int
    in_quick: bool = True


BENCHES = (
    Bench("planning", (8,), 120, 80),
    Bench("up_down", (1, 2), 780, 180),
    Bench("redeploy", (3,), 240, 120),
    Bench("router", (4,), 600, 120),
    Bench("load_rate", (5,), 600, 120),
    Bench("speed_up", (7,), 300, 90),
    Bench("telemetry", (10,), 240, 120),
    Bench("quickstart", (6,), 930, 200),
    Bench("data_images", (12,), 1800, 540),
    Bench("hosts", (9,), 2100, 240),
    Bench("install", (11,), 240, 200),
    Bench("ec2_fleet", (0,), 120, 60),
    Bench("advise", (0,), 300, 60),
    Bench("compare_power", (0,), 480, 120),
    Bench("report", (0,), 180, 120, in_quick=False),
)
# Not in `make bench`, because it takes minutes: ycsb_client.

TABLE = {
    1: "from nothing to a sharded collection that takes writes",
    2: "teardown of the same",
    3: "redeploy with another shard count, compressor or cache",
    4: "operations through the embedded mongos",
    5: "loading the inspection data",
    6: "share of a sweep's time that neither loads nor measures",
    7: "speed-up of an aggregation at as many shards as cores",
    8: "planning and validating 10,000 points",
    9: "configuring hosts",
    10: "telemetry at 1 Hz with 16 mongods",
    11: "installation",
    12: "restoring loaded data instead of loading again",
    0: "besides",
}
