"""Build a layer of given sizes, and find where it keeps its weights."""
