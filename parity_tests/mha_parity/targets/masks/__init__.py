"""What the mask parameters of a target mean, found by small calls, and how cases use them."""
