"""What the pictures of the lessons show: one function a picture, each returns a matplotlib Figure."""
