"""The pictures of the lessons: one function per picture, which returns a matplotlib Figure."""
