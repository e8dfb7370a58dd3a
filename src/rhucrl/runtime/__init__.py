"""What the program needs of the machine: compilation, processes, signals, time, the terminal."""
