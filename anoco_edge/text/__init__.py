"""Text from outside, made safe to show: control characters escaped, passwords masked."""
