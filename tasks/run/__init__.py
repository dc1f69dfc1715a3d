"""The run directory, the only truth about a training run: its files, its ledger, its lock, its story, and going on with
it. Imports configs and trainer's files."""
