"""Learning to rank for PyTorch and Lightning.

`import ltr` loads no subpackage. Import each subpackage by its own name, such as `ltr.losses` or
`ltr.metrics`.
"""

__version__ = "0.3.0"
