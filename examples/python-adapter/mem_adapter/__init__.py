"""A cloud adapter whose cloud is its own memory: one file a subject, and `cloud.py` is what a real one replaces."""
