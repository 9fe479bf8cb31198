"""How records are shown: tables, plots, pages, progress; and files that hold them."""
