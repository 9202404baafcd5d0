"""The measurements by target: T1 exact neighbours, ... each a function (rounds, quick) -> rows of the table."""
