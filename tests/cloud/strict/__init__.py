"""An EC2 on loopback as strict as the real one, with faults to inject; README.md lists what it is true to."""

import os

# Only the images of three distributions are launched; moto's 1,300 take 0.1 s to load each time.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from .account import Image, Machines, Timing
from .faults import Fault
from .server import Simulation

__all__ = ["Fault", "Image", "Machines", "Simulation", "Timing"]
