"""Keys that rows see and should see, and what hidden ones get."""
