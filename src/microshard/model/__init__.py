"""The types of everything that crosses a border, and what their fields have in common."""

OPTIONAL = {"optional": True}  # metadata of a field that is left out of the file while it holds its default
