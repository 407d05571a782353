"""Designs of calls, and statistics that several experiments take of the answers."""
