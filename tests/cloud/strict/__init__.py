"""An EC2 on loopback that is as strict as the real one, and as unlucky as a test wants it.

moto answers most calls; what it lets pass and AWS does not is refused here, what it drops is kept, and faults are
injected by action, count, delay, lost answer, zone and instance type.
"""

from .faults import Fault
from .server import Simulation
from .world import Timing

__all__ = ["Fault", "Simulation", "Timing"]
