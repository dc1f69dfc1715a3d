"""The run directory, the only truth about a training run: its files, its ledger, its lock, its events, and how to
resume it. Imports configs and trainer's files."""
