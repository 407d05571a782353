"""Adapters: functions of one call in the names of torch, and the source of one for a target."""
