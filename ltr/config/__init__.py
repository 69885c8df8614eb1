"""Configurations: an object as plain data, and the object again.

A configuration is what YAML has for LightningCLI: a class's path and its constructor's arguments,
and so on inwards. Each public class keeps what it was given as attributes of the arguments' names,
so nothing has to be registered. Checkpoints hold configurations in place of pickled objects:
reading one runs no code of the file's, and imports nothing but what this module lets in.
"""

from ltr.config.reading import BASES, check_trust, from_config, packages, read_arguments
from ltr.config.signatures import parameters
from ltr.config.writing import import_path, to_config

__all__ = [
    "BASES",
    "check_trust",
    "from_config",
    "import_path",
    "packages",
    "parameters",
    "read_arguments",
    "to_config",
]
