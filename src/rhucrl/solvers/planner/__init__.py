"""Plans instead of networks: a receding horizon in a known or learned model."""
