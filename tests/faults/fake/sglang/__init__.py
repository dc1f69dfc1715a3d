"""Stands in for SGLang where a fault test puts it first on PYTHONPATH."""
