"""PyTorch only: it knows nothing of Prefect, Ray or MLflow. Whole files and process groups, for the rooms within."""
