"""Two runs beside each other: point by point, with what differs around them.

`runs` makes a `Comparison` of two run folders, `render` shows it. How a difference is decided: docs/report.md.
"""
