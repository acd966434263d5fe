"""The processes: Faust host, agents, HTTP pages, metrics and logs. Faust lives here and nowhere else."""
