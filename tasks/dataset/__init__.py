"""Questions in, tokenised prompts out."""
