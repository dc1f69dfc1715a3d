"""How samples become packed rows of tokens, micro-batches and minibatches, and attention over packed rows."""
