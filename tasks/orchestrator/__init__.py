"""Prefect tasks on Ray: how a stage becomes a task, and how one that lost its worker is run again."""
