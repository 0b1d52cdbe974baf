"""EC2: what a fleet costs, how it is made, and how it is proven gone."""
