"""Queueing: how long requests wait, by load, servers and batch."""
