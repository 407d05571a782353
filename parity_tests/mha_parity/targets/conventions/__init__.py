"""The calling conventions that a signature tells, one class each."""
