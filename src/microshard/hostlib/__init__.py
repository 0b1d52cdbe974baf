"""What the modules share. Python's standard library only, from 3.9 on: database hosts have nothing else."""
