"""Ways into other libraries. Each module here imports the library it is for, so import the one you need."""
