"""Questions in, tokenised prompts out, and which of them a step takes."""
