"""The experiment file: its types, its errors, its matrix."""
