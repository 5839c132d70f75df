"""Scenario files: a run written down as a test, with its model, tools, people and clock scripted."""
