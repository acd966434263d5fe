"""Outside standards: modules named after the standard and exact to its vectors, and pins and digests of all of them."""
