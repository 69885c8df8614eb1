"""Data, networks and Lightning modules that only the papers' experiments use, by task."""
