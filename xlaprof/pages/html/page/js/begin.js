// The page's data, which the export froze: no figure is computed here that the report has.
const DATA = JSON.parse(document.getElementById('data').textContent);
const NOTHING = {};
