from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from microshard.plan.order import steps

_points = st.integers(1, 12).map(lambda n: [f"p{i:02d}" for i in range(1, n + 1)])
_policies = st.sampled_from(["interleaved", "sequential", "random"])


@given(_points, st.integers(1, 6), _policies, st.integers(0, 2**63 - 1), st.booleans())
def test_every_seed_gives_a_permutation_of_all_points_and_repetitions(points, repetitions, policy, seed, again):
    order = steps(points, repetitions, policy=policy, seed=seed, repeat_first=again, redeploy="per_point")
    measured = Counter((s.point, s.repetition) for s in order if s.purpose == "measure")
    assert measured == Counter((p, r) for p in points for r in range(1, repetitions + 1))
    assert [s.index for s in order] == list(range(len(order)))
    drift = [s for s in order if s.purpose == "drift"]
    assert [s.point for s in drift] == ([order[0].point] if again else [])


@given(_points, st.integers(1, 6), _policies, st.integers(0, 2**63 - 1))
def test_the_same_seed_gives_the_same_order(points, repetitions, policy, seed):
    def once():
        return steps(points, repetitions, policy=policy, seed=seed, repeat_first=False, redeploy="per_point")

    assert once() == once()


@given(_points, st.integers(1, 6), st.integers(0, 1000))
def test_interleaved_takes_every_point_once_before_any_point_again(points, repetitions, seed):
    order = steps(points, repetitions, policy="interleaved", seed=seed, repeat_first=False, redeploy="per_point")
    size = len(points)
    for turn in range(repetitions):
        assert {s.point for s in order[turn * size : (turn + 1) * size]} == set(points)


@given(_points, st.integers(1, 6), _policies, st.integers(0, 1000), st.booleans())
def test_a_point_is_deployed_once_before_its_first_step_and_undeployed_after_its_last(
    points, repetitions, policy, seed, again
):
    order = steps(points, repetitions, policy=policy, seed=seed, repeat_first=again, redeploy="per_point")
    for point in points:
        mine = [s for s in order if s.point == point]
        assert [s.deploy for s in mine] == [True] + [False] * (len(mine) - 1)
        assert [s.undeploy for s in mine] == [False] * (len(mine) - 1) + [True]


@given(_points, st.integers(1, 6), st.sampled_from(["interleaved", "sequential"]), st.integers(0, 1000))
def test_the_hosts_are_prepared_anew_as_rarely_as_the_policy_allows(points, repetitions, policy, seed):
    settings = {point: str(number % 3) for number, point in enumerate(points)}
    order = steps(points, repetitions, policy=policy, seed=seed, repeat_first=False, redeploy="per_point",
                  settings=settings)  # fmt: skip
    changes = sum(settings[a.point] != settings[b.point] for a, b in pairwise(order))
    kinds = len(set(settings.values()))
    assert changes == (kinds - 1) * (repetitions if policy == "interleaved" else 1)
    assert Counter(s.point for s in order) == Counter(dict.fromkeys(points, repetitions))


def test_per_repetition_deploys_and_undeploys_around_every_step():
    order = steps(["p01", "p02"], 3, policy="interleaved", seed=1, repeat_first=True, redeploy="per_repetition")
    assert len(order) == 7
    assert all(s.deploy and s.undeploy for s in order)


def test_different_seeds_give_different_orders():
    points = [f"p{i}" for i in range(8)]
    orders = {
        tuple(
            s.point for s in steps(points, 1, policy="interleaved", seed=seed, repeat_first=False, redeploy="per_point")
        )
        for seed in range(20)
    }
    assert len(orders) > 10
