"""How attention is computed: which engine, in which tiles, on which threads.

Private to the package: nothing here is a public name.
"""
