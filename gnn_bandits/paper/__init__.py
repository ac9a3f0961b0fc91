"""The reproduction of the paper: its data sets, experiments, figures and claims."""
