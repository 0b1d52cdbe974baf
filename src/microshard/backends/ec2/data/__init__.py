"""Dated tables of instance facts and prices, and the script that makes them."""
