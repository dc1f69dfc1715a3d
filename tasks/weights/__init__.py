"""Weights on their way from the learner to the engines, by disk or from memory, believed only if they arrived."""
