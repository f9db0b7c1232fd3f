"""One Prefect task a stage."""
