"""Under which sizes, features, values, digits and earlier calls an answer is wrong."""
