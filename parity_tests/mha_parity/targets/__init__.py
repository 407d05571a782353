"""Load a target, detect its calling convention, and call it on problems."""
