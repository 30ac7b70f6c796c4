"""Many runs that belong together: compare, tune, reproduce the paper; and who trains them."""
