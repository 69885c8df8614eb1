"""What only the papers' experiments use, by task: data, networks and Lightning modules."""
