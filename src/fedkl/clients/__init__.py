"""A client's work: local training, evaluation, recording; and the state that it keeps."""
