"""Load the file of a target: modules, notebooks, definitions alone, missing libraries."""
