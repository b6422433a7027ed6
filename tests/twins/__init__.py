"""CPU twins of GPU stages that NumPy's own results need no step of: what each stage leaves behind, under its name."""
