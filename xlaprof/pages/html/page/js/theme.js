// Light and dark: as the system has it, until somebody chooses.
const WANTS_DARK = matchMedia('(prefers-color-scheme: dark)');
let chosen = null;
try { chosen = localStorage.getItem('xlaprof-theme'); } catch { chosen = null; } // files may have no storage
function theme() { return chosen === 'light' || chosen === 'dark' ? chosen : WANTS_DARK.matches ? 'dark' : 'light'; }
function themeSwitch() {
  const button = h('button', {type: 'button', id: 'theme', onclick: () => {
    chosen = theme() === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('xlaprof-theme', chosen); } catch { /* it is not remembered then */ }
    apply();
  }});
  function apply() {
    document.documentElement.dataset.theme = theme();
    button.textContent = theme() === 'dark' ? 'Light' : 'Dark';
    button.setAttribute('aria-label', `Switch to the ${theme() === 'dark' ? 'light' : 'dark'} theme`);
    themed();
  }
  WANTS_DARK.addEventListener('change', apply);
  apply();
  return button;
}
// On paper everything is light and open.
function forPaper(begin) {
  if (begin) {
    document.documentElement.dataset.theme = 'light';
    if (findingList) findingList.revealAll();
    for (const one of document.querySelectorAll('.finding details, details.file')) if (!one.open) { one.open = true; one.dataset.opened = ''; one.dispatchEvent(new Event('toggle')); }
  } else {
    for (const one of document.querySelectorAll('[data-opened]')) { one.open = false; delete one.dataset.opened; }
    document.documentElement.dataset.theme = theme();
  }
  palette = new Map();
  INK.clear();
  for (const plot of [stepPlot, timePlot]) if (plot) plot.paint();
}
addEventListener('beforeprint', () => forPaper(true));
addEventListener('afterprint', () => forPaper(false));
