"""Programs that only a type checker reads; script/test lets mypy read them."""
