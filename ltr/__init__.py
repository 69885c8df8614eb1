"""Learning to rank for PyTorch and Lightning: `ltr.operators`, `ltr.losses`, `ltr.metrics` and more.

Importing `ltr` loads nothing else; each subpackage is imported by its own name.
"""

__version__ = "0.1.0"
