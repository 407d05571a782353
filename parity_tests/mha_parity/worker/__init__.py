"""Run the target in a process of its own, with time-outs and captured output."""
