"""Engines execute the phases of a workload: `python -m microshard.workloads --job JOB --out RESULT`.

An engine is one module of this package with a class `ENGINE` (see base.Engine); its module's name is the name
the definition uses. docs/contracts.md has the files that go in and come out.
"""
