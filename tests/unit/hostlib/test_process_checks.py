"""Whether a running server is as planned."""

import os

from microshard.hostlib import process_checks


def test_limits_are_compared_with_the_planned_ones() -> None:
    limits = process_checks.limits_of(os.getpid())
    assert process_checks.limits_difference({"nofile": limits["nofile"][0]}, limits) == ""
    assert "has the limit nofile" in process_checks.limits_difference({"nofile": 7}, limits)
    contained = {"memlock": ["8192", "8192"]}
    assert process_checks.limits_difference({"memlock": "infinity"}, contained, {"memlock": ["0", "8192"]}) == ""
    assert "planned is unlimited" in process_checks.limits_difference({"memlock": "infinity"}, contained)
    assert "planned is 9000" in process_checks.limits_difference({"memlock": 9000}, contained, contained)


def test_options_are_compared_in_the_forms_a_server_gives_them() -> None:
    wanted = {"net": {"port": 1}, "setParameter": {"a": True, "n": 3}, "storage": {"cache": 0.25}}
    found = {"net": {"port": 1.0, "more": 1}, "setParameter": {"a": "true", "n": "3"}, "storage": {"cache": 0.25}}
    assert process_checks.options_difference(wanted, found) == ""
    assert (
        process_checks.options_difference({"net": {"port": 2}}, found)
        == "has net.port 1.0, its configuration file says 2"
    )
    assert (
        process_checks.options_difference({"net": {"tls": "x"}}, found)
        == "has no net.tls, its configuration file says x"
    )
