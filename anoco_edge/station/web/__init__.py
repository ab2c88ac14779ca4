"""The application that browsers and programs speak to: guards, limits, pages, live messages."""
