"""Models, trainings and measurements, the records they write, and tables and plots of those."""
