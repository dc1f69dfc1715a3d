"""An engine: one SGLang server and its life, in a Ray actor."""
