"""Tell pytest to leave out the site's own extensions where the site's tools are not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("griffe") else ["griffe_doctests.py", "hooks.py"]
