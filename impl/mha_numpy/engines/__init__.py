"""The engines, their tiles and their threads. Private to the package: nothing here is public."""
