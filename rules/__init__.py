"""The pipeline's stages, one `.smk` file each, and the settings that they share."""
