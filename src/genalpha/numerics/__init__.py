"""Newton's method, linear algebra, derivatives, status codes, and the data that everything speaks of."""
