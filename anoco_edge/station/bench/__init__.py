"""A line beside its page, while nobody asks for it and while it is flooded."""
