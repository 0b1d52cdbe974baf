"""A virtual machine for what one kernel cannot show several containers: its settings, its devices, its NUMA nodes."""
