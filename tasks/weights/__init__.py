"""Sending weights from the learner to the engines, by disk or from memory, and checking that they arrived."""
