"""From options to a verdict: many cases, in this process or in several."""
