"""What is told while work is under way: numbers, and bars."""
