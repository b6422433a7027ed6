"""One normalised request: what the user asked for, checked and brought into one form."""
