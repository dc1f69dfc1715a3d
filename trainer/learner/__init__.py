"""The learner: what turns scored samples into the next version of the weights, and the cold start before it."""
