"""Set-up of the checkout (`make setup`): Python's standard library only, nothing of the project is imported."""
