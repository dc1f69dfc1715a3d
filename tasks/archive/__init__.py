"""A copy of a run in any store that fsspec knows, from which the run can go on elsewhere."""
