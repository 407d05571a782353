"""Recorded answers: a file of cases with what torch computes of them, to judge by without torch."""
