"""Scored samples in, new weights out: the learner as Ray actors."""
