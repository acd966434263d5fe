"""What the facts of the registry add up to: what was in force where and when, with its pins and signatures."""
