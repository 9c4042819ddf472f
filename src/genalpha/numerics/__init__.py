"""Newton's method, linear algebra, derivatives, status codes, and the data types that all packages use."""
