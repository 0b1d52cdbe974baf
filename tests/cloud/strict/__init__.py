"""An EC2 on loopback that is as strict as the real one, and as unlucky as a test wants it.

moto answers most calls; what it lets pass and AWS does not is refused here, what it drops is kept, and faults are
injected by action, count, delay, lost answer, zone and instance type.
"""

import os

# The images of the three distributions are all that is launched; moto's own 1,300 take 0.1 s to load each time.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from .faults import Fault
from .server import Simulation
from .world import Boots, Timing

__all__ = ["Boots", "Fault", "Simulation", "Timing"]
