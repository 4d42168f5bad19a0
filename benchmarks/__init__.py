"""What a tick costs, in numbers that another machine can be compared with: `make bench`."""
