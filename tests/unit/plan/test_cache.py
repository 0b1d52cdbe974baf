import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.model.topology import Cache
from microshard.plan.cache import budget


@given(st.floats(1, 1e6), st.integers(1, 512))
def test_a_host_total_is_never_exceeded(total, processes):
    shared = budget(Cache(policy="host_total_mb", value=total), processes, 8192.0)
    assert shared.total_mib <= total
    assert shared.total_mib == pytest.approx(total, abs=processes / 1024)


@given(st.floats(0.01, 1.0), st.integers(1, 512), st.floats(512, 1e6))
def test_a_fraction_of_ram_is_never_exceeded(fraction, processes, ram):
    shared = budget(Cache(policy="fraction_of_ram", value=fraction), processes, ram)
    assert shared.total_mib <= fraction * ram


@given(st.floats(0.5, 1e5), st.integers(1, 512))
def test_per_process_is_the_same_whatever_the_number_of_processes(value, processes):
    shared = budget(Cache(policy="per_process_mb", value=value), processes, None)
    assert shared.per_process_mib == pytest.approx(value, abs=1 / 1024)


@pytest.mark.parametrize(("value", "through"), [(255.9, True), (256.0, False), (2.0, True)])
def test_below_the_options_minimum_the_configuration_string_is_used(value, through):
    assert budget(Cache(policy="per_process_mb", value=value), 1, None).through_config_string is through


def test_a_fraction_of_an_unknown_ram_is_refused():
    with pytest.raises(ValueError, match="RAM"):
        budget(Cache(policy="fraction_of_ram", value=0.5), 1, None)
