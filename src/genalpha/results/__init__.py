"""Solutions: made from the records of a run, kept in files, drawn."""
