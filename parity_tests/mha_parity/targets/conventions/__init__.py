"""The calling conventions, one class each: how an attention is given its inputs and weights."""
