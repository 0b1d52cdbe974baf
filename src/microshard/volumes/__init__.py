"""Emulated volumes: loop devices on sparse files with the IOPS and throughput of a volume one would rent.

Python's standard library only. Everything lies in the run's folder, and is found there again by what the kernel shows,
so that a run that was killed can be cleaned up from its folder alone.
"""
