"""Prompts in, responses out: how the engines share a step's samples."""
