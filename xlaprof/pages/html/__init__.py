"""The report as one HTML file: views, data and script in a page that needs no network."""
