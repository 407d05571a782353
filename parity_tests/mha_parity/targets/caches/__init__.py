"""Calls with a key/value cache: where a target has one, and rows one after another."""
