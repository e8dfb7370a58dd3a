"""Solvers of the two hallucinated problems (`eq:rhucrl`)."""
