"""Parts that exist only as code: good and defective pictures to try the detector on."""
