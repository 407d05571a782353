"""Numbers that a module of layers imports."""

n_embd = 64
block_size = 32
dropout = 0.1
EOS = 3
E = 2.718281828
