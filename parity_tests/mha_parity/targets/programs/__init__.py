"""Programs of any language as targets."""
