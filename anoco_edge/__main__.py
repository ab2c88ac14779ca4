"""`python -m anoco_edge` is `anoco-edge`."""

from anoco_edge.cli import main

if __name__ == "__main__":
    main()
