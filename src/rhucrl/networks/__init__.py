"""Networks: layers, critics, and the policies that act."""
