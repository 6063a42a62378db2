"""Reports: tables, figures, pages and exports, made from run directories alone."""
