"""Small calls that show which features a target offers."""
