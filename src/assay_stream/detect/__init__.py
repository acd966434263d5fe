"""What new text and schemas try to make a model do: surfaces, decoders, rules as data, and the search."""
