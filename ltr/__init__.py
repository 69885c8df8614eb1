"""Learning to rank for PyTorch and Lightning.

Importing `ltr` loads nothing else; each subpackage, such as `ltr.losses` or `ltr.metrics`, is
imported by its own name.
"""

__version__ = "0.2.0"
