"""Where an output is right but for which array, weight or place it is made of."""
