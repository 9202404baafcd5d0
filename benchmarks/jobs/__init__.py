"""The jobs by target, such as T1 for exact neighbors: each is a function (rounds, quick) -> rows of the table."""
