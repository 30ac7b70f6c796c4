"""Who executes the annotations: beartype, to which an int is a float, as it is to mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
