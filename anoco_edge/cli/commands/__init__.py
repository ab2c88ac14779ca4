"""The commands of anoco-edge, one module each."""
