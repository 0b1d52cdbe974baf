"""What each module does, apart from being a module: its arguments, and one function from them to a result."""
