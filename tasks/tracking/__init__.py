"""MLflow, a projection of the ledger, and where a measurement comes from."""
