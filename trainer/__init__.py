"""The learner: PyTorch only. It knows nothing of Prefect, Ray or MLflow."""
