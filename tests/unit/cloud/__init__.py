"""The parts of the EC2 code that need no EC2."""
