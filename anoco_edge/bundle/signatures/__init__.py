"""Signed bundles: keys and signatures in the format of minisign, and the statement they sign."""
