"""What the engine `initial_sync` reads from the syncing member, and how it interrupts it."""
