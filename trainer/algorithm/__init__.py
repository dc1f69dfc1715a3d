"""The mathematics of policy-gradient methods as pure functions on tensors."""
