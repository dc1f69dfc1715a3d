"""The stages of a step, one folder each, and the runtime that they stand on."""
