"""From numbers to conclusions: the bottleneck of a measurement, and whether it is valid at all.

`verdict.judge` names the bottleneck by the rules of `rules.py`; `gates.py` says which measurements count;
`environment.py` whether two were made under the same conditions. All are pure functions of a result and its telemetry.
"""

from __future__ import annotations
