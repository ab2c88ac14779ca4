"""What PLCs and other programs are connected by; all carry the words of line/words."""
