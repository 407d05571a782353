"""Compare an answer with the reference: match, less accurate, wrong or inconclusive."""
