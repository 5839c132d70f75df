"""The version, read by the packaging metadata too."""

__version__ = "0.1.0"
