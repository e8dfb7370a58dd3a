"""Gaussian processes (`section:gp_models`): kernels, posterior, likelihood, and the model made of them."""
