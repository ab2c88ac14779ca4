"""The words that every bus carries, their numbers, and their layout in registers."""
