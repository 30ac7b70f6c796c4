"""What a client does: local training, evaluation, recording; and what it keeps."""
