"""What SGLang needs on a CPU. It lives in SGLang's own processes, which find it by an entry point."""
