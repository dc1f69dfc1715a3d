"""SGLang's server: how it is started, and how it is talked to."""
