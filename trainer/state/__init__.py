"""The learner's state beyond an update: checkpoints, older weights versions, and exported weights."""
