"""A cloud adapter that keeps its cloud in memory. For a real cloud, replace `cloud.py`."""
