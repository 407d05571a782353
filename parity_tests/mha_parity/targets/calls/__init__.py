"""One call of a target: its arrays, the call, what it returns or raises, its gradients."""
