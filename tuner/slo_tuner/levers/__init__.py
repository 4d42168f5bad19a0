"""One module per lever, all of one small protocol (see `base`)."""
