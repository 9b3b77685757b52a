"""Jobs in Apptainer's or Singularity's containers."""
