"""A product as people look at it and change it, with what a change would have done."""
