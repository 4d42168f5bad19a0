"""Pure builders: what a server's objects and model configurations look like. Nothing here talks to anyone."""
