"""What happens, in order: the Prefect flow and the command line that starts it."""
