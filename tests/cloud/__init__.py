"""EC2 over real HTTP on loopback."""
