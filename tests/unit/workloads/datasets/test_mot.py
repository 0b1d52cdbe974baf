"""The data set `mot`: the same for everyone, valid BSON, and shaped like the inspections it stands for."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microshard.model.datasets import MotCompact
from microshard.workloads.datasets import mot, mot_catalog
from tests.mot_documents import AVERAGE_BYTES, BAND_LIMITS, mot_documents

SAMPLE = 200_000
FIELDS = list("tvdcyrmskoufei")
NUMBERS = ("t", "v", "d", "c", "m", "e", "i", "type_result", "area", "variant", "colour")


@pytest.fixture(scope="module")
def sample() -> mot.Columns:
    return mot.columns(0, SAMPLE, seed=11)


def field_values(cols: mot.Columns, index: int) -> dict[str, Any]:
    """One document's fields, from its columns."""
    variant = mot_catalog.variants()[int(cols.variant[index])]
    y, r = mot.type_results()[int(cols.type_result[index])]
    area = mot_catalog.weighted(mot_catalog.AREAS)[0][int(cols.area[index])]
    colour = mot_catalog.weighted(mot_catalog.COLOURS)[0][int(cols.colour[index])]
    t, v, d, c, m, e, i = (int(getattr(cols, name)[index]) for name in "tvdcmei")
    values = (t, v, d, c, y, r, m, area, variant.make, variant.description, colour, variant.fuel, e, i)
    return dict(zip(FIELDS, values, strict=True))


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**9), st.integers(1, 200), st.data())
@settings(max_examples=60)
def test_a_document_is_the_same_in_whichever_interval_it_is_made(seed: int, first: int, count: int, data: Any) -> None:
    cut = data.draw(st.integers(0, count))
    whole = mot.columns(first, count, seed)
    left, right = mot.columns(first, cut, seed), mot.columns(first + cut, count - cut, seed)
    for name in NUMBERS:
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(left, name), getattr(right, name)]))


def test_the_data_set_is_what_it_was_in_earlier_versions() -> None:
    """Published results name a seed: its documents may never change."""
    values = (1000123457, 30908352, 16032, 4, "NORMAL TEST", "P", 61297, "PE", "LAND ROVER",
              "FREELANDER TD4 SE 2.0 110 PS 5 SPEED MANUAL 5 DOOR ESTATE", "BLUE", "D", 1951, 13801)  # fmt: skip
    assert field_values(mot.columns(123_456, 1, seed=1), 0) == dict(zip(FIELDS, values, strict=True))


@given(st.integers(0, 2**40), st.integers(1, 50), st.integers(0, 2**63 - 1))
@settings(max_examples=40)
def test_every_document_decodes_to_its_columns(first: int, count: int, seed: int) -> None:
    cols = mot.columns(first, count, seed)
    epoch = datetime(1970, 1, 1)
    for number, document in enumerate(mot_documents(first, count, seed)):
        expected = field_values(cols, number)
        expected |= {name: epoch + timedelta(days=expected[name]) for name in "di"}
        assert list(document) == ["_id", *FIELDS]
        assert document == {"_id": first + number, **expected}


def test_ids_are_used_as_given_and_the_average_size_is_as_stated() -> None:
    ids = np.array([5 << 32, (5 << 32) + 1, 2**62], dtype=np.int64)
    encoded, starts = mot.encode(mot.columns(0, 3, 1), ids)
    assert [bson.decode(encoded[a:b])["_id"] for a, b in pairwise(starts.tolist())] == ids.tolist()
    encoded, _ = mot.encode(mot.columns(0, SAMPLE, 11), np.arange(SAMPLE))
    assert len(encoded) / SAMPLE == pytest.approx(AVERAGE_BYTES, abs=1)


def test_compact_documents_are_the_same_inspections_in_the_size_of_the_published_ones(sample: mot.Columns) -> None:
    encoded, starts = mot.encode(sample, np.arange(SAMPLE), compact=True)
    assert len(encoded) / SAMPLE == pytest.approx(MotCompact.average_bytes, abs=1)
    assert MotCompact.average_bytes == pytest.approx(88.9e9 / 580_650_946, abs=1)
    for number in range(0, 2000, 7):
        document = bson.decode(encoded[starts[number] : starts[number + 1]])
        whole = field_values(sample, number)
        assert list(document) == ["_id", *FIELDS]
        assert {key: document[key] for key in "tvcmersukf"} == {key: whole[key] for key in "tvcmersukf"}
        assert whole["o"].startswith(f"{document['o']} ")
        assert document["y"] == {"N": "N", "F": "F"}.get(whole["y"][0]) or document["y"] in {"PL", "PV"}


def share(mask: Any) -> float:
    return float(np.mean(mask))


def test_values_have_their_shares(sample: mot.Columns) -> None:
    results, types = sample.type_result % len(mot_catalog.RESULTS), sample.type_result // len(mot_catalog.RESULTS)
    limits = {"P": (0.60, 0.75), "F": (0.20, 0.35), "PRS": (0.02, 0.08)}
    for result, (low, high) in limits.items():
        assert low < share(results == mot_catalog.RESULTS.index(result)) < high
    assert share(types == 0) == pytest.approx(0.74, abs=0.01)
    fuels = np.array([variant.fuel for variant in mot_catalog.variants()])[sample.variant]
    assert 0.90 < share(sample.c == 4) < 0.97
    assert set(np.unique(sample.c)) == {1, 2, 4, 5, 7}
    assert 0.30 < share(fuels == "D") < 0.42
    assert set(np.unique(fuels)) == set("PDHLE")
    assert len(np.unique(sample.area)) == len(mot_catalog.weighted(mot_catalog.AREAS)[0])
    assert len(np.unique(sample.variant)) > 0.98 * len(mot_catalog.variants())
    # Older vehicles fail more often.
    age = (sample.d - sample.i) // 365
    assert share(results[(types == 0) & (age < 5)] == 0) > share(results[(types == 0) & (age > 11)] == 0) + 0.15


def test_mileage_grows_with_age_and_has_a_long_tail(sample: mot.Columns) -> None:
    age = (sample.d - sample.i) // 365
    young, old = (np.median(sample.m[age == years]) for years in (3, 9))
    assert 15_000 < young < 40_000
    assert old > 1.8 * young
    assert np.mean(sample.m) > 1.05 * np.median(sample.m)
    assert sample.m.min() >= 0
    assert sample.m.max() < 500_000


def test_dates_lie_in_the_records_years_and_after_the_third_year(sample: mot.Columns) -> None:
    day = int(datetime(2005, 1, 2, tzinfo=UTC).timestamp()) // 86400
    assert sample.d.min() >= day
    assert sample.d.max() <= int(datetime(2014, 12, 31, tzinfo=UTC).timestamp()) // 86400
    assert (sample.d - sample.i).min() >= 3 * 365
    assert not np.any((sample.d + 4) % 7 == 0), "stations are closed on Sundays"


def test_a_vehicle_is_the_same_in_all_its_inspections() -> None:
    cols = mot.columns(0, 1_000_000, seed=2)
    order = np.argsort(cols.v, kind="stable")
    again = np.flatnonzero(np.diff(cols.v[order]) == 0)
    assert len(again) > 10_000
    for name in ("variant", "colour", "i", "e", "c"):
        values = getattr(cols, name)[order]
        assert np.array_equal(values[again], values[again + 1]), name


def test_the_published_pipeline_has_the_limits_of_the_source() -> None:
    path = Path(__file__).parents[4] / "experiments" / "pipelines" / "mot_greenness.json"
    band = json.loads(path.read_text())[0]["$group"]["_id"]["$multiply"][0]["$switch"]
    limits = [(branch["case"]["$lt"], branch["then"]) for branch in band["branches"]]
    assert limits == [(["$e", limit], number) for number, limit in enumerate(BAND_LIMITS, 1)]
