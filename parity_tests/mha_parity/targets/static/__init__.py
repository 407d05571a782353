"""Facts that names, annotations, documentation and source of a target show, without a call."""
