"""The decisions of InferenceSLO: numbers in, decisions out.

Pure Python: no Kubernetes, no network, no clock, no global state. The caller passes what it saw
(`snapshot`), what it remembers (`memory`), what it may do (`policy`) and the time; `decide` answers
with what should be true from now on, and why.
"""
