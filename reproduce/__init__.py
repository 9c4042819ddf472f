"""The experiments of the papers, one folder a paper, one module a figure.

``python -m reproduce`` makes all pictures and tables and a summary page, and fails where a measured slope
leaves its band.
"""
