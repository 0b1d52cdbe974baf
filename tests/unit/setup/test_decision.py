"""What set-up does about MongoDB where the packaged one cannot run, or is not wanted."""

from setup.command import decide

from tests.unit.setup.test_checks import DEBIAN_12, machine

NO_AVX = machine(cpu_flags=frozenset())


def test_all_that_is_missing_is_installed() -> None:
    decision = decide(DEBIAN_12, ["run", "mongodb", "project"], anew=True, need_mongod=True)
    assert decision.parts == ["run", "mongodb", "project"]
    assert not decision.problems
    assert not decision.without_mongodb


def test_set_up_goes_on_without_a_wheel_that_cannot_run_and_says_why() -> None:
    decision = decide(NO_AVX, ["run", "mongodb", "project"], anew=True, need_mongod=False)
    assert decision.parts == ["run", "project"]
    assert not decision.problems
    assert "AVX" in decision.without_mongodb


def test_a_sweep_stops_before_the_download_where_no_mongod_can_run() -> None:
    (problem,) = decide(NO_AVX, ["run", "mongodb"], anew=True, need_mongod=True).problems
    assert "AVX" in problem


def test_a_mongod_of_ones_own_replaces_the_wheel() -> None:
    facts = machine(cpu_flags=frozenset(), own_mongod="/opt/mongod", own_mongod_runs=True)
    decision = decide(facts, ["run", "mongodb"], anew=True, need_mongod=True)
    assert decision.parts == ["run"]
    assert not decision.problems
    assert "/opt/mongod" in decision.without_mongodb
