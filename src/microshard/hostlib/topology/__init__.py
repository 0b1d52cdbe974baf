"""How processes become a topology. Runs where pymongo is: on the controller."""
