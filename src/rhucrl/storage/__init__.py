"""Files: arrays and JSON that no crash can tear, the folder of a run, and folders of runs."""
