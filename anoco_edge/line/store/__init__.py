"""What the line writes down: data base, pictures, outbox, and what is kept how long."""
