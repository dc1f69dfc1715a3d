"""What of the learner outlives an update: checkpoints, older versions, and weights on their way out."""
