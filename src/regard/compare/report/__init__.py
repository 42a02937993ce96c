"""What was measured, as tables, paragraphs, pictures and a page."""
