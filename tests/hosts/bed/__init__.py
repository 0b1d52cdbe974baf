"""Machines for tests: containers with a real init, SSH and three volumes each, in a network namespace of their own."""

from tests.hosts.bed.lab import Bed, BedError, bed, lacking
from tests.hosts.bed.machine import Machine

__all__ = ["Bed", "BedError", "Machine", "bed", "lacking"]
