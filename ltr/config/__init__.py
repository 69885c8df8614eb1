"""Configurations: turn an object into plain data, and the data back into the object.

A configuration has the form of YAML for LightningCLI: the import path of a class and the arguments
of its constructor, which may be configurations themselves. Each public class keeps its arguments as
attributes of the same names, so nothing has to be registered. Saved models hold configurations
instead of pickled objects. A configuration holds no code, and reading one imports only from `ltr`,
from `torch.nn` and from packages that the caller trusts.
"""

from ltr.config.reading import check_trust, from_config, read_arguments
from ltr.config.signatures import parameters
from ltr.config.writing import import_path, to_config

__all__ = [
    "check_trust",
    "from_config",
    "import_path",
    "parameters",
    "read_arguments",
    "to_config",
]
