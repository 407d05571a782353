"""The vector-Jacobian products: from cotangents of the results to the gradients of all arrays.

Private to the package: nothing here is a public name.
"""
