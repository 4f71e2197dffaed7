"""What a new user does in the first five minutes, step by step as the pages have it, and how long it takes."""
