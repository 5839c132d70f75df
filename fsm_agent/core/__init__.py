"""The pure core: no I/O, no clock, no randomness, nothing global; everything a run does is decided here."""
