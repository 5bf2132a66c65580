"""A cloud adapter whose cloud is its own memory: one file a subject, and `cloud.py` is what a real one replaces."""

NAME = "mem-adapter"
VERSION = "0.1.0"
