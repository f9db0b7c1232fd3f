"""Order of the stages, one flow a purpose."""
