"""Find what makes plain git run a program, read elsewhere or show something else, without a baseline."""
