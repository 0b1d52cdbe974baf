"""Statistics of an experiment: pure functions from repetitions to estimates with intervals.

`bootstrap` holds medians and ratios, `scaling` the Universal Scalability Law, `shape` the distance to a published
curve.
"""

from microshard.analysis.bootstrap import (
    Better,
    Estimate,
    Interval,
    efficiency,
    median_estimate,
    ratio_estimate,
    speed_up,
    usable_cores,
)
from microshard.analysis.curve_distance import CurveDistance, curve_distance
from microshard.analysis.scaling import Refused, UslFit, fit_usl

__all__ = [
    "Better",
    "CurveDistance",
    "Estimate",
    "Interval",
    "Refused",
    "UslFit",
    "curve_distance",
    "efficiency",
    "fit_usl",
    "median_estimate",
    "ratio_estimate",
    "speed_up",
    "usable_cores",
]
