"""Machines, what goes where on them, what fits and how long it may take: pure functions, without Ray or PyTorch."""
