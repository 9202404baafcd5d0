"""Data and oracles that tests of several folders share."""
