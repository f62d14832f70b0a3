"""A local web page to review, merge and drop branches, and to watch and stop sessions."""
