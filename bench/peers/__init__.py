"""The same join written with other frameworks, and what it takes to measure them beside ours."""
