"""What is shown: the demonstration, pages, plots, films, and the benchmark of pieces."""
