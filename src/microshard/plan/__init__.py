"""From an experiment to a plan: hosts, processes, phases and order. Pure functions only."""
