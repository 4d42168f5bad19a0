"""Triton Python-backend models; each `model.py` of the repository imports one of them."""
