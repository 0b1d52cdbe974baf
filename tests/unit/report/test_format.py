import pytest

from microshard.analysis.bootstrap import Estimate, Interval
from microshard.report import format as fmt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.4271, "2.43"),
        (0.012345, "0.0123"),
        (51320.4, "51,320"),
        (0.0, "0"),
        (None, "–"),
        (float("nan"), "–"),
        (-3.5, "-3.50"),
    ],
)
def test_numbers_have_three_digits_that_mean_something(value: float | None, shown: str) -> None:
    assert fmt.number(value) == shown


def test_interval_has_the_decimals_of_its_median() -> None:
    estimate = Estimate(2.4, Interval(2.3456, 10.0, 0.95, "percentile bootstrap", 0.75), 3)
    assert fmt.spread(estimate) == "2.40 [2.35–10.00]"
    assert fmt.spread(estimate, 100, 2) == "240 [235–1,000]"
    assert fmt.spread(Estimate(2.4, None, 1)) == "2.40"
    assert fmt.spread(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "–"), (4.26, "4.3 s"), (42, "42 s"), (185, "3 min 05 s"), (7620, "2 h 07 min")]
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert fmt.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(512, "512 B"), (40.1 * 2**20, "40.1 MiB"), (3 * 2**40, "3.00 TiB"), (None, "–")]
)
def test_sizes(size: float | None, shown: str) -> None:
    assert fmt.size(size) == shown


def test_moments_are_utc() -> None:
    assert fmt.moment(0) == "1970-01-01 00:00 UTC"


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["form plain", "form where"], ["plain", "where"]),
        (["block_size 4 KiB", "block_size 8 KiB"], ["4 KiB", "8 KiB"]),
        (["throttle true", "throttle false"], ["throttle true", "throttle false"]),
        (["chunk size 4", "chunk size 64"], ["size 4", "size 64"]),
    ],
)
def test_labels_lose_what_all_have_but_stay_readable(labels: list[str], shown: list[str]) -> None:
    assert fmt.distinguishing_labels(labels) == shown


def test_a_value_has_its_unit_where_there_is_one() -> None:
    assert fmt.with_unit(1.0734, "") == "1.07"
    assert fmt.with_unit(17.25, "s") == "17.2 s"
    assert fmt.with_unit(5 * 2**20, "bytes") == "5.00 MiB"
