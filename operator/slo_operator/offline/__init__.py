"""Diagnosis from what people have saved: metrics pages and model repositories, without a cluster."""
