"""A run's processes on Ray: the nodes, what is reserved there, named actors, and servers under a guard."""
