"""The bounds of the analysis, and games on which they can be tested."""
