"""Ask a target a problem: what all calling conventions share."""
