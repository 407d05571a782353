"""Find how a target is called by trying interpretations on small problems."""
