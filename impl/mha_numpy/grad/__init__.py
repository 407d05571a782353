"""The vector-Jacobian products. Private to the package: nothing here is a public name."""
