"""Interpretations: what each parameter of a call may be for, and a trial of each."""
