"""Recipes: the typed schema, the loader, and the YAML files."""
