"""Prompts in, responses out: SGLang engines and the samples that they produce."""
