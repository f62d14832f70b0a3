"""The sandbox of an agent: what it can read, write and reach, and the programs that enforce it."""
