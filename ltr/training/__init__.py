"""What each training loop does, Lightning's and that of the estimators; none needs Lightning."""
