"""The nouns that every room shares: case, problem, answer, check result, verdict, options."""
