"""Settings of a host's kernel: read, set, kept over a reboot, put back."""
