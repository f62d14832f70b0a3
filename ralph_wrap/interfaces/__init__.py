"""What a person, a program or the kernel calls."""
