"""A read-only page over run folders, live in the browser. Needs no torch."""
