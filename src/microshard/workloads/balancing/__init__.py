"""What the engine `balance` looks at and what it does to the cluster."""
