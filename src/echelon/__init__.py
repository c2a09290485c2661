"""Echelon: one robot policy, trained with the help of many."""
