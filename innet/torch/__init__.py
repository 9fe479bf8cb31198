"""What innet offers to PyTorch. The only place that imports it; ``pip install 'innet[torch]'``."""
